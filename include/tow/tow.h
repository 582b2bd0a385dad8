/* Tow: neural-network layers, autodiff with rematerialisation, and compiled training programs in C. */
#ifndef TOW_TOW_H
#define TOW_TOW_H

#include "tow/autodiff.h"
#include "tow/base.h"
#include "tow/graph.h"
#include "tow/io.h"
#include "tow/layers.h"
#include "tow/module.h"
#include "tow/ops.h"
#include "tow/program.h"
#include "tow/train.h"
#include "tow/transforms.h"
#include "tow/version.h"

#endif
