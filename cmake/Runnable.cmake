# tow_runnable(VARIABLE TARGET): what a test's script calls to run the program TARGET. ctest itself puts
# CMAKE_CROSSCOMPILING_EMULATOR before programs for another processor; scripts get a file that does so, under the program's
# own name in build/<preset>/emulated.
function(tow_runnable variable target)
  if(NOT CMAKE_CROSSCOMPILING_EMULATOR)
    set(${variable} $<TARGET_FILE:${target}> PARENT_SCOPE)
    return()
  endif()
  set(file ${PROJECT_BINARY_DIR}/emulated/$<TARGET_FILE_NAME:${target}>)
  get_property(done TARGET ${target} PROPERTY TOW_RUNNABLE)
  if(NOT done)
    file(GENERATE OUTPUT ${file} CONTENT "#!/bin/sh\nexec '${CMAKE_CROSSCOMPILING_EMULATOR}' '$<TARGET_FILE:${target}>' \"$@\"\n"
         FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    set_property(TARGET ${target} PROPERTY TOW_RUNNABLE ON)
  endif()
  set(${variable} ${file} PARENT_SCOPE)
endfunction()
