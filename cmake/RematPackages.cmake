# remat_require(PACKAGE DEBIAN debian-package [COMPONENT...]): find_package, whose
# failure says what to install instead of what to put into which variable.
macro(remat_require package debian_keyword debian_package)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found. On Debian: apt-get install ${debian_package}\n"
      "(scripts/setup installs everything that remat is built with)")
  endif()
endmacro()

# The same for a pkg-config module: PkgConfig::NAME.
macro(remat_require_module name module debian_keyword debian_package)
  remat_require(PkgConfig DEBIAN pkg-config)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${module} was not found. On Debian: apt-get install ${debian_package}\n"
      "(scripts/setup installs everything that remat is built with)")
  endif()
endmacro()

# What remat is built with. FindLibtorch stands beside this file.
macro(remat_find_packages)
  remat_require(Threads DEBIAN libc6-dev)
  remat_require(Libtorch DEBIAN libtorch-dev)
  find_package(LibtorchGloo QUIET)
  remat_require(nlohmann_json DEBIAN nlohmann-json3-dev)
  remat_require_module(SentencePiece sentencepiece DEBIAN libsentencepiece-dev)
  remat_require(CLI11 DEBIAN libcli11-dev)
  remat_require(tomlplusplus DEBIAN libtomlplusplus-dev)
  find_path(XXHASH_INCLUDE_DIR xxhash.h)
  mark_as_advanced(XXHASH_INCLUDE_DIR)
  if(NOT XXHASH_INCLUDE_DIR)
    message(FATAL_ERROR "xxhash.h was not found. On Debian: apt-get install libxxhash-dev\n"
      "(scripts/setup installs everything that remat is built with)")
  endif()
  message(STATUS "libtorch ${LIBTORCH_VERSION} in ${LIBTORCH_torch_cpu_LIBRARY}")
endmacro()
