# HiGHS, the solver of integer programs, as Highs::Highs: its C API in header and library.
#
# Looked for under LOWTIDE_HIGHS_ROOT, then in the Python package highsbox, then where the system keeps libraries. The
# CMake files of highsbox are not used: they name a folder that it does not have, and its C++ API another ABI.
set(LOWTIDE_HIGHS_ROOT "" CACHE PATH "Where HiGHS is installed, if it is not to be that of the Python package highsbox")
set(highs_hints ${LOWTIDE_HIGHS_ROOT})
if(NOT highs_hints AND NOT Highs_LIBRARY)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter)
  if(Python_EXECUTABLE)
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import highsbox; print(highsbox.highs_dist_dir())"
      OUTPUT_VARIABLE highs_hints OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
find_path(Highs_INCLUDE_DIR interfaces/highs_c_api.h HINTS ${highs_hints} PATH_SUFFIXES include/highs highs)
find_library(Highs_LIBRARY highs HINTS ${highs_hints} PATH_SUFFIXES lib)
mark_as_advanced(Highs_INCLUDE_DIR Highs_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Highs REQUIRED_VARS Highs_LIBRARY Highs_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "pip install highsbox, or say where it is with -DLOWTIDE_HIGHS_ROOT=")
if(Highs_FOUND AND NOT TARGET Highs::Highs)
  add_library(Highs::Highs SHARED IMPORTED)
  set_target_properties(Highs::Highs PROPERTIES IMPORTED_LOCATION ${Highs_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Highs_INCLUDE_DIR})
endif()
