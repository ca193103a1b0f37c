# The real program, end to end, on texts that the scripts make.
foreach(name end_to_end bad_input interruption memory plan)
  add_test(NAME cli.${name}
    COMMAND bash ${PROJECT_SOURCE_DIR}/tests/cli/${name}.sh $<TARGET_FILE:remat>)
  set_tests_properties(cli.${name} PROPERTIES TIMEOUT 900)
endforeach()
