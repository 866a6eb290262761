#include "server/telemetry/model_status.h"

#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace sru::server::telemetry {
namespace {

TEST(WithoutRepositoryTest, PathsStartAtTheRepository) {
  for (const auto& [message, repository, expected] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"/srv/models/m/1/config.json: bad", "/srv/models", "m/1/config.json: bad"},
           {"/srv/models/m/1/config.json: bad", "/srv/models/", "m/1/config.json: bad"},
           {"/srv/models//m: bad", "/srv/models//", "m: bad"},
           {"model m version 1: /srv/models/m/1: bad; see /srv/models/m/2", "/srv/models",
            "model m version 1: m/1: bad; see m/2"},
           {"'/srv/models/m': bad", "/srv/models", "'m': bad"},
           {"/srv/models: cannot be listed", "/srv/models", "the repository: cannot be listed"},
           {"nothing below /srv/models", "/srv/models", "nothing below the repository"},
           {"models/m: bad", "models", "m: bad"},
           {"./m: see ../m", ".", "m: see ../m"},
           // Other paths.
           {"/srv/models2/m: bad", "/srv/models", "/srv/models2/m: bad"},
           {"/mnt/srv/models/m: bad", "/srv/models", "/mnt/srv/models/m: bad"},
           {"old_models/m", "models", "old_models/m"},
           {"/m/1: bad", "/", "/m/1: bad"},
           {"", "/srv/models", ""},
       }) {
    EXPECT_EQ(WithoutRepository(message, repository), expected) << message;
  }
}

}  // namespace
}  // namespace sru::server::telemetry
