// Everything public of remat's runtime.
#pragma once

#include "remat/base/error.h"
#include "remat/base/version.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/dropout.h"
#include "remat/runtime/layer_selection.h"
#include "remat/runtime/layer_stack.h"
#include "remat/runtime/policy.h"
#include "remat/runtime/print_saved.h"
#include "remat/runtime/recompute_context.h"
#include "remat/runtime/recompute_group.h"
#include "remat/runtime/recomputing.h"
#include "remat/runtime/save_on_cpu.h"
#include "remat/runtime/saved_tensor_hooks.h"
#include "remat/runtime/sequential.h"
#include "remat/store/host_store.h"
