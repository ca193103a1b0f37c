// Loaded by Python beside its own libtorch: a region, or what it says.
#include <ATen/ATen.h>

#include <cstdio>
#include <exception>

#include "remat/runtime/checkpoint.h"

// Writes "ok" or the exception's text.
extern "C" void remat_try_region(char* text, size_t size) {
  try {
    const at::Tensor x = at::ones({2}).requires_grad_();
    remat::checkpoint([](const at::Tensor& t) { return t.sin().exp(); }, x);
    std::snprintf(text, size, "ok");
  } catch (const std::exception& error) {
    std::snprintf(text, size, "%s", error.what());
  }
}
