/* Planted operations that are wrong on purpose, each in one way that one check is there to find. They are primitives
 * that are defined through the public interface. */
#ifndef TOW_TESTS_PROGRAMS_FAULT_H
#define TOW_TESTS_PROGRAMS_FAULT_H

#include "tow/tow.h"

/* Makes all of them known, so that programs that contain them can be read. False: the context has an error. */
bool define_faults(tow_context *context);
bool is_fault(const char *name);
/* The planted operation on x, of x's type. */
tow_value record_fault(tow_trace *t, const char *name, tow_value x);

#endif
