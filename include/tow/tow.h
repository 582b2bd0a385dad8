/* Tow: neural-network layers, autodiff with rematerialization, and compiled training programs in C.
 *
 * C11 and later, C++17 and later. In C++, which has no compound literals, shapes and axes are arrays in variables where
 * the comments of these headers write (int64_t[]){3, 4}, and macros of layers take no options (module.h). */
#ifndef TOW_TOW_H
#define TOW_TOW_H

#include "tow/activations.h"
#include "tow/attention.h"
#include "tow/autodiff.h"
#include "tow/base.h"
#include "tow/check.h"
#include "tow/combinators.h"
#include "tow/control.h"
#include "tow/copy.h"
#include "tow/custom.h"
#include "tow/data.h"
#include "tow/generate.h"
#include "tow/graph.h"
#include "tow/host.h"
#include "tow/indexing.h"
#include "tow/initializers.h"
#include "tow/io.h"
#include "tow/kernel.h"
#include "tow/layers.h"
#include "tow/log.h"
#include "tow/lora.h"
#include "tow/metrics.h"
#include "tow/model.h"
#include "tow/module.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/params.h"
#include "tow/primitive.h"
#include "tow/program.h"
#include "tow/random.h"
#include "tow/recurrent.h"
#include "tow/tokenizer.h"
#include "tow/train.h"
#include "tow/transforms.h"
#include "tow/version.h"
#include "tow/weights.h"

#endif
