# The installed package: find_package(lowtide) gives lowtide::lowtide and, where it finds what they need, lowtide::io and
# lowtide::published.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lowtide)

install(TARGETS lowtide EXPORT lowtide_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT lowtide_targets FILE lowtideTargets.cmake NAMESPACE lowtide::
  DESTINATION ${package_dir} COMPONENT development)
# A file for each part that needs more: a project without zstd can still have the core.
foreach(part io published)
  if(TARGET lowtide_${part})
    install(TARGETS lowtide_${part} EXPORT lowtide_${part}_targets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(EXPORT lowtide_${part}_targets FILE lowtide_${part}Targets.cmake NAMESPACE lowtide::
      DESTINATION ${package_dir} COMPONENT development)
  endif()
endforeach()

configure_package_config_file(cmake/lowtideConfig.cmake.in ${PROJECT_BINARY_DIR}/lowtideConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Until 1.0 a minor version may rename things.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lowtideConfig.cmake ${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake
  cmake/FindHighs.cmake DESTINATION ${package_dir} COMPONENT development)
