# cpack in the build folder (`make deb`) makes a Debian package: the component runtime, and the component `service` with
# the unit of systemd. It depends on the packages that the programs' libraries come from, so it is for the release of
# Debian or Ubuntu that it was built on.
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/deploy)
# The unit has the paths of the prefix that it is installed to.
install(CODE "
  set(PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
  configure_file(${folder}/systemd/sru-server.service.in
                 \"\$ENV{DESTDIR}\${PREFIX}/lib/systemd/system/sru-server.service\" @ONLY)
" COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${folder}/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME sru-server.conf
        COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${folder}/debian/default DESTINATION /etc/default RENAME sru-server COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION share/doc/sru-server RENAME copyright COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime service debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PACKAGE_NAME sru-server)
set(CPACK_STRIP_FILES ON)
set(CPACK_SET_DESTDIR ON)  # /etc is not below the prefix
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "root <root@localhost>" CACHE STRING "Who builds packages")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${folder}/debian/conffiles ${folder}/debian/postinst ${folder}/debian/postrm
    ${folder}/debian/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
