# The installed package: find_package(lowtide) gives lowtide::lowtide.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lowtide)

install(TARGETS lowtide EXPORT lowtide_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT lowtide_targets FILE lowtideTargets.cmake NAMESPACE lowtide::
  DESTINATION ${package_dir} COMPONENT development)

configure_package_config_file(cmake/lowtideConfig.cmake.in ${PROJECT_BINARY_DIR}/lowtideConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Until 1.0 a minor version may rename things.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lowtideConfig.cmake ${PROJECT_BINARY_DIR}/lowtideConfigVersion.cmake
  cmake/FindHighs.cmake DESTINATION ${package_dir} COMPONENT development)
