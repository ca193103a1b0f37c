# Libtorch::Libtorch, from Debian's libtorch-dev or any libtorch on CMAKE_PREFIX_PATH.
# Not libtorch's own TorchConfig: it forces flags on every target and looks for CUDA.
# Sets Libtorch_FOUND and LIBTORCH_VERSION. Installed with the package as well.
find_path(LIBTORCH_INCLUDE_DIR ATen/core/Tensor.h)
find_path(LIBTORCH_API_INCLUDE_DIR torch/torch.h PATH_SUFFIXES torch/csrc/api/include)
foreach(library torch torch_cpu c10)
  find_library(LIBTORCH_${library}_LIBRARY ${library})
  mark_as_advanced(LIBTORCH_${library}_LIBRARY)
endforeach()
mark_as_advanced(LIBTORCH_INCLUDE_DIR LIBTORCH_API_INCLUDE_DIR)

set(LIBTORCH_VERSION "")
# Newer ones keep the numbers in torch/headeronly.
foreach(file ${LIBTORCH_API_INCLUDE_DIR}/torch/version.h
             ${LIBTORCH_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT LIBTORCH_VERSION AND EXISTS ${file})
    file(STRINGS ${file} lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
    list(JOIN numbers "." LIBTORCH_VERSION)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
  REQUIRED_VARS LIBTORCH_torch_LIBRARY LIBTORCH_torch_cpu_LIBRARY LIBTORCH_c10_LIBRARY
                LIBTORCH_INCLUDE_DIR LIBTORCH_API_INCLUDE_DIR
  VERSION_VAR LIBTORCH_VERSION
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libtorch-dev")
if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_link_libraries(Libtorch::Libtorch INTERFACE
    ${LIBTORCH_torch_LIBRARY} ${LIBTORCH_torch_cpu_LIBRARY} ${LIBTORCH_c10_LIBRARY})
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    ${LIBTORCH_API_INCLUDE_DIR} ${LIBTORCH_INCLUDE_DIR})
endif()
