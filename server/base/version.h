// The version of this build, for --version and sru_build_info. SRU_VERSION comes from CMake.
#ifndef SRU_SERVER_BASE_VERSION_H_
#define SRU_SERVER_BASE_VERSION_H_

namespace sru::server {

inline constexpr char kVersion[] = SRU_VERSION;

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_VERSION_H_
