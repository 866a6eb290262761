// The main() of the test programs that run once per backend.
#include <gmock/gmock.h>

#include <cstdio>
#include <memory>

#include "kernels/cpu/isa/cpu_isa.h"
#include "tests/testing/emulated_tiles.h"
#include "tests/testing/tested_backend.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in cmake/SruTargets.cmake
  ::testing::InitGoogleMock(&argc, argv);
  sru::kernels::cpu::AddEmulatedTiles(sru::kernels::cpu::EmulatedTileKernel());
  std::unique_ptr<sru::kernels::Backend> backend;
  const sru::kernels::Status status =
      sru::testing::TestedBackend::FromEnvironment().Create(&backend);
  if (status.code() == sru::kernels::StatusCode::kUnavailable) {
    std::printf("SKIPPED: %s\n", status.message().c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
