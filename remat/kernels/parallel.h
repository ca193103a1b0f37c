// at::parallel_for, certain to be parallel.
#pragma once

#include <ATen/Config.h>
#include <ATen/Parallel.h>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "without -fopenmp at::parallel_for runs on one thread and says nothing"
#endif
