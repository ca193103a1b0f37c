# package: the build is installed, found and used as a stranger would, through CMake
# and through pkg-config.
add_test(NAME package COMMAND ${CMAKE_COMMAND}
  -DBUILD_DIR=${PROJECT_BINARY_DIR} -DSOURCE_DIR=${CMAKE_CURRENT_LIST_DIR}
  -DGENERATOR=${CMAKE_GENERATOR} -DCXX=${CMAKE_CXX_COMPILER}
  -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
  -P ${CMAKE_CURRENT_LIST_DIR}/check_package.cmake)
set_tests_properties(package PROPERTIES TIMEOUT 1800)
