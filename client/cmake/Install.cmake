# cmake --install BUILD --component client --prefix PREFIX: what find_package(sru_client) finds, which is the
# library sru::client, its headers and those that protoc made. Only if the component is named: the installation of
# programs has none of it. The package is where PREFIX is; a program that links it needs the shared libraries of
# gRPC, protobuf, Abseil, OpenSSL and utf8proc that it was built with.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sru_client)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/sru_client)

set_target_properties(sru_client_lib PROPERTIES EXPORT_NAME client)
set_target_properties(sru_proto PROPERTIES EXPORT_NAME client_proto)
set_target_properties(sru_base PROPERTIES EXPORT_NAME client_base)
install(TARGETS sru_client_lib sru_proto sru_base EXPORT sru_client
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client EXCLUDE_FROM_ALL
        INCLUDES DESTINATION ${headers})
install(EXPORT sru_client NAMESPACE sru:: FILE sru_clientTargets.cmake DESTINATION ${package}
        COMPONENT client EXCLUDE_FROM_ALL)

# client.h and what it includes.
install(FILES calls.h cancellation.h client.h connect_options.h messages_fwd.h DESTINATION ${headers}/client COMPONENT client EXCLUDE_FROM_ALL)
install(FILES ${SRU_SOURCE_ROOT}/base/mutex.h DESTINATION ${headers}/base COMPONENT client EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/sru ${PROJECT_BINARY_DIR}/proto/google DESTINATION ${headers}
        COMPONENT client EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.pb.h" PATTERN CMakeFiles EXCLUDE)
install(DIRECTORY ${SRU_SOURCE_ROOT}/proto/sru DESTINATION share/sru_client/proto
        COMPONENT client EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.proto")
install(FILES ${SRU_SOURCE_ROOT}/LICENSE DESTINATION share/doc/sru_client COMPONENT client EXCLUDE_FROM_ALL)

configure_package_config_file(cmake/sru_clientConfig.cmake.in sru_clientConfig.cmake INSTALL_DESTINATION ${package}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(sru_clientConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sru_clientConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/sru_clientConfigVersion.cmake
        DESTINATION ${package} COMPONENT client EXCLUDE_FROM_ALL)
