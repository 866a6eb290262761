// The main() of the programs that hold the tests of a folder. `--entry=batcher_test` runs the tests
// of batcher_test.cc alone, as the CTest entry of that name does; everything else is GoogleTest's.
// An entry without a test is an error, as a test that was renamed would otherwise pass for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

// GoogleTest's filter of the tests that stand in `file`, "" if there are none.
std::string FilterOf(std::string_view file) {
  std::string filter;
  const ::testing::UnitTest& tests = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < tests.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *tests.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(j);
      std::string_view path = test.file();
      path.remove_prefix(path.rfind('/') + 1);  // 0 without a folder
      if (path == file) {
        filter += std::string(filter.empty() ? "" : ":") + suite.name() + "." + test.name();
      }
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  constexpr std::string_view kEntry = "--entry=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.substr(0, kEntry.size()) != kEntry) {
      continue;
    }
    const std::string file = std::string(argument.substr(kEntry.size())) + ".cc";
    const std::string filter = FilterOf(file);
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no test of this program is in %s\n", argv[0], file.c_str());
      return 1;
    }
    if (::testing::GTEST_FLAG(filter) == "*") {  // a filter of one's own wins
      ::testing::GTEST_FLAG(filter) = filter;
    }
  }
  return RUN_ALL_TESTS();
}
