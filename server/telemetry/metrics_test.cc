#include "server/telemetry/metrics.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/choose_backend.h"
#include "server/base/clock.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// When this program's constants were made: after its start, before the first scrape.
const absl::Time kInitialized = absl::Now();

const RealClock kClock;

CallTimes Times(absl::Duration total) {
  CallTimes times;
  times.tokenize = absl::Microseconds(10);
  times.queue = absl::Microseconds(60);
  times.compute = absl::Microseconds(300);
  times.total = total;
  return times;
}

void ExpectLines(const std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) EXPECT_THAT(text, HasSubstr(line));
}

ServerLevels::ModelLevels& AddModel(ServerLevels* levels, const std::string& name) {
  ServerLevels::ModelLevels& model = levels->models.emplace_back();
  model.model = name;
  model.version = 1;
  return model;
}

TEST(MetricsTest, SumsOfTheCallsOfAModel) {
  FakeClock clock;
  Metrics metrics(&clock);
  const std::shared_ptr<ModelMetrics> model = metrics.ForModel("m", 1, 100);
  CallTimes times;
  times.tokenize = absl::Microseconds(1);
  times.queue = absl::Microseconds(2);
  times.compute = absl::Microseconds(4);
  times.total = absl::Microseconds(8);
  EXPECT_EQ(model->sums().last_end, absl::InfinitePast());
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, times, /*sequences=*/3);
  model->OnCall(calls::MethodId::kModelInfer, absl::StatusCode::kOk, times, /*sequences=*/2);
  clock.Advance(absl::Minutes(1));
  const absl::Time last = clock.WallNow();
  model->OnCall(calls::MethodId::kEncode, absl::StatusCode::kInvalidArgument, times,
                /*sequences=*/9);
  clock.Advance(absl::Minutes(1));
  model->OnCall(calls::MethodId::kModelMetadata, absl::StatusCode::kOk, times);
  model->OnBatch(5, 50, absl::Microseconds(4), absl::OkStatus());
  const ModelMetrics::CallSums sums = model->sums();
  EXPECT_EQ(sums.succeeded, 2);
  EXPECT_EQ(sums.failed, 1);
  EXPECT_EQ(sums.sequences, 5);
  EXPECT_EQ(sums.batches.at(5).batches, 1);
  EXPECT_EQ(sums.times.tokenize, absl::Microseconds(2));
  EXPECT_EQ(sums.times.queue, absl::Microseconds(4));
  EXPECT_EQ(sums.times.compute, absl::Microseconds(8));
  EXPECT_EQ(sums.times.total, absl::Microseconds(16));
  EXPECT_EQ(sums.failed_total, absl::Microseconds(8));
  EXPECT_EQ(sums.last_end, last);  // a look-up does not count
}

TEST(MetricsTest, BatchesAndStepsBySize) {
  Metrics metrics(&kClock);
  const std::shared_ptr<ModelMetrics> model = metrics.ForModel("m", 1, 100);
  EXPECT_TRUE(model->sums().batches.empty());
  model->OnBatch(5, 50, absl::Microseconds(4), absl::OkStatus());
  model->OnBatch(1, 50, absl::Microseconds(2), absl::OkStatus());
  model->OnStep(5, absl::Microseconds(3));
  model->OnStep(2, absl::Microseconds(1));
  const std::map<int, ModelMetrics::BatchSum> sums = model->sums().batches;
  ASSERT_EQ(sums.size(), 3);
  EXPECT_EQ(sums.at(1).batches, 1);
  EXPECT_EQ(sums.at(2).compute, absl::Microseconds(1));
  EXPECT_EQ(sums.at(5).batches, 2);
  EXPECT_EQ(sums.at(5).compute, absl::Microseconds(7));
}

TEST(MetricsTest, CountsCallsByMethodModelVersionAndCode) {
  Metrics metrics(&kClock);
  const auto model = metrics.ForModel("trec", 3, 4096);
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, Times(absl::Microseconds(400)));
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, Times(absl::Seconds(20)));
  model->OnCall(calls::MethodId::kEncode, absl::StatusCode::kInvalidArgument, CallTimes());
  metrics.OnCallWithoutModel(calls::MethodId::kEncode, absl::StatusCode::kNotFound);
  const std::string text = metrics.Text(ServerLevels());
  ExpectLines(
      text,
      {
          "sru_requests_total{code=\"OK\",method=\"Classify\",model=\"trec\",version=\"3\"} 2",
          "sru_requests_total{code=\"INVALID_ARGUMENT\",method=\"Encode\",model=\"trec\","
          "version=\"3\"} 1",
          "sru_requests_total{code=\"NOT_FOUND\",method=\"Encode\",model=\"\",version=\"\"} 1",
          "sru_request_duration_seconds_bucket{method=\"Classify\",model=\"trec\",version=\"3\","
          "le=\"0.0005\"} 1",
          "sru_request_duration_seconds_bucket{method=\"Classify\",model=\"trec\",version=\"3\","
          "le=\"+Inf\"} 2",
          "sru_request_duration_seconds_count{method=\"Encode\",model=\"trec\",version=\"3\"} 0",
          "sru_tokenize_duration_seconds_count{model=\"trec\",version=\"3\"} 2",
          "sru_queue_duration_seconds_bucket{model=\"trec\",version=\"3\",le=\"5e-05\"} 0",
          "sru_queue_duration_seconds_bucket{model=\"trec\",version=\"3\",le=\"0.0001\"} 2",
      });
}

TEST(MetricsTest, OnlyMethodsThatAModelAnswersHaveDurationsFromTheStart) {
  Metrics metrics(&kClock);
  const auto is_score = [](calls::MethodId method) { return method == calls::MethodId::kScore; };
  const auto model = metrics.ForModel("lm", 1, 4096, is_score);
  const std::string labels = "model=\"lm\",version=\"1\"} ";
  const std::string count = "sru_request_duration_seconds_count{method=";
  std::string text = metrics.Text(ServerLevels());
  EXPECT_THAT(text, HasSubstr(count + "\"Score\"," + labels + "0"));
  EXPECT_THAT(text, Not(HasSubstr(count + "\"Classify\"," + labels)));
  // The version was replaced by a model of another task.
  CallTimes times;
  model->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, times);
  text = metrics.Text(ServerLevels());
  EXPECT_THAT(text, HasSubstr(count + "\"Classify\"," + labels + "1"));
}

TEST(MetricsTest, DescribesTextsThatAreGenerated) {
  Metrics metrics(&kClock);
  const auto model = metrics.ForModel("lm", 1, 4096, [](calls::MethodId method) {
    return method == calls::MethodId::kScore || method == calls::MethodId::kGenerate;
  });
  const auto other = metrics.ForModel(
      "trec", 1, 4096, [](calls::MethodId method) { return method == calls::MethodId::kClassify; });
  EXPECT_THAT(metrics.Text(ServerLevels()),
              HasSubstr("sru_time_to_first_token_seconds_count{model=\"lm\",version=\"1\"} 0"));
  model->OnFirstToken(absl::Milliseconds(30));
  model->OnNextToken(absl::Milliseconds(2));
  model->OnStep(7, absl::Milliseconds(1));
  model->OnCall(calls::MethodId::kGenerate, absl::StatusCode::kOk, Times(absl::Seconds(2)));
  ServerLevels levels;
  levels.open_streams = 4;
  levels.models.resize(1);
  levels.models[0].model = "lm";
  levels.models[0].version = 1;
  batching::StepStats stats;
  stats.new_tokens = 60;
  stats.running = 2;
  stats.paused = 1;
  stats.rejected[batching::RejectReason::kDeadline] = 5;
  stats.expired = 3;
  stats.cancelled = 4;
  levels.models[0].stats.expired = 20;
  levels.models[0].stats.cancelled = 30;
  levels.models[0].generator = stats;
  levels.models[0].stats.rejected[batching::RejectReason::kDeadline] = 2;
  const std::string text = metrics.Text(levels);
  ExpectLines(text,
              {"sru_time_to_first_token_seconds_bucket{model=\"lm\",version=\"1\",le=\"0.02\"} 0",
               "sru_time_to_first_token_seconds_bucket{model=\"lm\",version=\"1\",le=\"0.05\"} 1",
               "sru_inter_token_seconds_count{model=\"lm\",version=\"1\"} 1",
               "sru_decode_batch_sequences_sum{model=\"lm\",version=\"1\"} 7",
               "sru_compute_duration_seconds_count{model=\"lm\",version=\"1\"} 1",
               "sru_generated_tokens_total{model=\"lm\",version=\"1\"} 60",
               "sru_generate_calls{model=\"lm\",version=\"1\",state=\"running\"} 2",
               "sru_generate_calls{model=\"lm\",version=\"1\",state=\"waiting\"} 0",
               "sru_generate_calls{model=\"lm\",version=\"1\",state=\"paused\"} 1",
               "sru_rejections_total{model=\"lm\",version=\"1\",reason=\"deadline\"} 7",
               "sru_expired_total{model=\"lm\",version=\"1\"} 23",
               "sru_cancelled_total{model=\"lm\",version=\"1\"} 34", "sru_open_streams 4",
               // The time that a stream waits in all is no time of a queue.
               "sru_queue_duration_seconds_count{model=\"lm\",version=\"1\"} 0",
               "sru_tokenize_duration_seconds_count{model=\"lm\",version=\"1\"} 1"});
  EXPECT_THAT(text, Not(HasSubstr("sru_time_to_first_token_seconds_count{model=\"trec\"")));
}

TEST(MetricsTest, CountsWordsAndThoseThatAreUnknown) {
  Metrics metrics(&kClock);
  const auto model = metrics.ForModel("trec", 1, 4096);
  // Both are there from the start, so that a rate has a beginning.
  std::string text = metrics.Text(ServerLevels());
  EXPECT_THAT(text, HasSubstr("sru_text_tokens_total{model=\"trec\",version=\"1\"} 0"));
  EXPECT_THAT(text, HasSubstr("sru_unknown_tokens_total{model=\"trec\",version=\"1\"} 0"));
  model->OnWords(7, 2);
  model->OnWords(4, 0);
  text = metrics.Text(ServerLevels());
  EXPECT_THAT(text, HasSubstr("sru_text_tokens_total{model=\"trec\",version=\"1\"} 11"));
  EXPECT_THAT(text, HasSubstr("sru_unknown_tokens_total{model=\"trec\",version=\"1\"} 2"));
}

TEST(MetricsTest, DescribesBatches) {
  Metrics metrics(&kClock);
  const auto model = metrics.ForModel("trec", 1, 1000);
  model->OnBatch(3, 500, absl::Milliseconds(1), absl::OkStatus());
  const std::string text = metrics.Text(ServerLevels());
  ExpectLines(text, {"sru_batch_sequences_sum{model=\"trec\",version=\"1\"} 3",
                     "sru_batch_tokens_sum{model=\"trec\",version=\"1\"} 500",
                     "sru_batch_fill_ratio_sum{model=\"trec\",version=\"1\"} 0.5",
                     "sru_compute_duration_seconds_sum{model=\"trec\",version=\"1\"} 0.001"});
}

TEST(MetricsTest, LevelsAreThoseOfTheScrape) {
  Metrics metrics(&kClock);
  ServerLevels levels;
  levels.ready = true;
  levels.requests_in_flight = 7;
  levels.backend = "cpu";
  levels.dtype = "bfloat16";
  levels.isa = "avx512_bf16";
  batching::BatcherStats stats;
  stats.queued_sequences = 4;
  stats.queued_tokens = 99;
  stats.oldest_age = absl::Milliseconds(250);
  stats.rejected[batching::RejectReason::kQueueFull] = 5;
  stats.rejected[batching::RejectReason::kDeadline] = 6;
  stats.expired = 2;
  levels.models.push_back({"trec", 1, stats, 0, {}, "classifier"});
  const std::string text = metrics.Text(levels);
  const std::string labels = "{model=\"trec\",version=\"1\"}";
  ExpectLines(
      text,
      {
          std::string("sru_ready 1"),
          std::string("sru_requests_in_flight 7"),
          std::string("sru_models_loaded 1"),
          std::string("sru_backend_info{backend=\"cpu\",dtype=\"bfloat16\",isa=\"avx512_bf16\"} 1"),
          std::string("sru_model_info{model=\"trec\",version=\"1\",task=\"classifier\"} 1"),
          "sru_queue_sequences" + labels + " 4",
          "sru_queue_tokens" + labels + " 99",
          "sru_queue_oldest_age_seconds" + labels + " 0.25",
          "sru_expired_total" + labels + " 2",
          std::string("sru_rejections_total{model=\"trec\",version=\"1\",reason=\"queue_full\"} "
                      "5"),
          std::string("sru_rejections_total{model=\"trec\",version=\"1\",reason=\"deadline\"} 6"),
      });
}

// All refusals are counted in one place: those by the batcher, before the batcher, and before the
// model is known.
TEST(MetricsTest, RefusalsOfEachReasonAreThereWhoeverRefused) {
  Metrics metrics(&kClock);
  const auto trec = metrics.ForModel("trec", 1, 4096);
  trec->OnRefusal(batching::RejectReason::kMemory);
  metrics.OnRefusalWithoutModel(batching::RejectReason::kMemory);
  ServerLevels levels;
  ServerLevels::ModelLevels& model = AddModel(&levels, "trec");
  for (const batching::RejectReason reason : batching::kRejectReasons)
    model.stats.rejected[reason] = 10;
  model.rejected_before_batcher = trec->refusals();
  levels.rejected = metrics.refusals_without_model();
  const std::string text = metrics.Text(levels);
  for (const batching::RejectReason reason : batching::kRejectReasons) {
    const bool memory = reason == batching::RejectReason::kMemory;
    EXPECT_THAT(
        text, HasSubstr(absl::StrCat("sru_rejections_total{model=\"trec\",version=\"1\",reason=\"",
                                     Describe(reason).name, "\"} ", memory ? 11 : 10, "\n")));
  }
  EXPECT_THAT(text, HasSubstr("sru_rejections_total{model=\"\",version=\"\",reason=\"memory\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("model=\"\",version=\"\",reason=\"queue_full\"")));
}

TEST(MetricsTest, TheStartTimeIsThatOfTheProcess) {
  const std::string text = Metrics(&kClock).Text(ServerLevels());
  const std::string name = "\nprocess_start_time_seconds ";
  const size_t at = text.find(name);
  ASSERT_NE(at, std::string::npos) << text;
  double seconds = 0;
  ASSERT_TRUE(absl::SimpleAtod(
      text.substr(at + name.size(), text.find('\n', at + 1) - at - name.size()), &seconds));
  EXPECT_LE(absl::UnixEpoch() + absl::Seconds(seconds), kInitialized);
}

TEST(MetricsTest, SeriesGoWithTheLastOwnerOfAModel) {
  Metrics metrics(&kClock);
  auto first = metrics.ForModel("trec", 1, 4096);
  first->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, Times(absl::Microseconds(400)));
  auto second = metrics.ForModel("trec", 1, 4096);  // loaded anew
  auto other = metrics.ForModel("trec", 2, 4096);
  first.reset();
  second->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, Times(absl::Microseconds(400)));
  EXPECT_THAT(metrics.Text(ServerLevels()),
              HasSubstr("sru_requests_total{code=\"OK\",method=\"Classify\",model=\"trec\","
                        "version=\"1\"} 2"));
  second.reset();
  EXPECT_THAT(metrics.Text(ServerLevels()), Not(HasSubstr("version=\"1\"")));
  EXPECT_THAT(metrics.Text(ServerLevels()), HasSubstr("version=\"2\""));
  second = metrics.ForModel("trec", 1, 4096);
  second->OnCall(calls::MethodId::kClassify, absl::StatusCode::kOk, Times(absl::Microseconds(400)));
  EXPECT_THAT(metrics.Text(ServerLevels()),
              HasSubstr("sru_requests_total{code=\"OK\",method=\"Classify\",model=\"trec\","
                        "version=\"1\"} 1"));
}

TEST(MetricsTest, StatesOfModels) {
  Metrics metrics(&kClock);
  metrics.OnModelLoaded(absl::Milliseconds(30));
  ServerLevels levels;
  levels.statuses = {{"trec", 1, ModelState::kUnloading, ""},
                     {"trec", 1, ModelState::kUnloading, ""},
                     {"trec", 1, ModelState::kReady, ""},
                     {"trec", 2, ModelState::kFailed, "why"}};
  levels.load_counts = {{"trec", 3, 4}};
  const std::string text = metrics.Text(levels);
  ExpectLines(text, {"sru_model_state{model=\"trec\",version=\"1\",state=\"unloading\"} 2",
                     "sru_model_state{model=\"trec\",version=\"1\",state=\"ready\"} 1",
                     "sru_model_state{model=\"trec\",version=\"2\",state=\"failed\"} 1",
                     "sru_model_loads_total{model=\"trec\"} 3",
                     "sru_model_load_failures_total{model=\"trec\"} 4",
                     "sru_model_load_duration_seconds_bucket{le=\"0.05\"} 1"});
}

TEST(MetricsTest, NoModelMeansNoModelSeries) {
  Metrics metrics(&kClock);
  ServerLevels levels;
  levels.grpc_version = "1.51.1";
  const std::string text = metrics.Text(levels);
  EXPECT_THAT(text, HasSubstr("sru_ready 0"));
  EXPECT_THAT(text, HasSubstr("sru_models_loaded 0"));
  EXPECT_THAT(text, HasSubstr("sru_build_info{version=\""));
  EXPECT_THAT(text, HasSubstr(",commit=\"unknown\","));
  // Whatever the machine has.
  EXPECT_THAT(text, HasSubstr("backends=\"" + absl::StrJoin(kernels::BuiltBackends(), ",") + "\""));
  EXPECT_THAT(text, HasSubstr(",grpc=\"1.51.1\"} 1"));
  EXPECT_THAT(text, HasSubstr("process_resident_memory_bytes "));
  EXPECT_THAT(text, Not(HasSubstr("model=")));
}

TEST(MetricsTest, ShowsDevicesAndInstances) {
  ServerLevels levels;
  ServerLevels::ModelLevels& model = AddModel(&levels, "trec");
  model.instances = 3;
  model.stats.rejected[batching::RejectReason::kNoWorker] = 4;
  ServerLevels::DeviceLevels device;
  device.info.ordinal = 5;
  device.info.memory_bytes = 1000;
  device.info.memory_limit = 900;
  device.info.memory_in_use = 300;
  device.info.memory_free = 650;
  device.info.weight_bytes = 100;
  device.info.graph_hits = 40;
  device.info.graph_misses = 3;
  levels.devices.push_back(device);
  device.info.ordinal = 7;
  device.lost = true;
  levels.devices.push_back(device);
  const std::string text = Metrics(&kClock).Text(levels);
  ExpectLines(text,
              {"sru_gpu_memory_bytes{device=\"5\",kind=\"weights\"} 100",
               "sru_gpu_memory_bytes{device=\"5\",kind=\"workspaces\"} 200",
               "sru_gpu_memory_bytes{device=\"5\",kind=\"limit\"} 900",
               "sru_gpu_memory_bytes{device=\"5\",kind=\"free\"} 650",
               "sru_gpu_memory_bytes{device=\"5\",kind=\"total\"} 1000",
               "sru_gpu_batches_total{device=\"5\",graph=\"hit\"} 40",
               "sru_gpu_batches_total{device=\"5\",graph=\"miss\"} 3",
               "sru_device_lost_total{device=\"5\"} 0", "sru_device_lost_total{device=\"7\"} 1",
               "sru_instances{model=\"trec\",version=\"1\"} 3",
               "sru_rejections_total{model=\"trec\",version=\"1\",reason=\"no_worker\"} 4"});
  // A server on the processor has no such series.
  EXPECT_THAT(Metrics(&kClock).Text(ServerLevels()), Not(HasSubstr("sru_gpu_memory_bytes")));
}

TEST(MetricsTest, ShowsTheMemoryOfStates) {
  ServerLevels levels;
  AddModel(&levels, "trec");
  ServerLevels::ModelLevels& model = AddModel(&levels, "lm");
  model.states.emplace();
  model.states->slots = 12;
  model.states->used_bytes = 3000;
  model.states->held_bytes = 4096;
  levels.state_budget_bytes = {16000000};
  const std::string text = Metrics(&kClock).Text(levels);
  ExpectLines(text, {"sru_state_slots{model=\"lm\",version=\"1\",kind=\"used\"} 12",
                     "sru_state_bytes{model=\"lm\",version=\"1\",kind=\"used\"} 3000",
                     "sru_state_bytes{model=\"lm\",version=\"1\",kind=\"held\"} 4096",
                     "sru_state_budget_bytes{device=\"processor\"} 16000000"});
  EXPECT_THAT(text, Not(HasSubstr("sru_state_bytes{model=\"trec\"")));
  EXPECT_THAT(text, Not(HasSubstr("sru_prefix_cache")));

  ServerLevels::DeviceLevels device;
  device.info.ordinal = 5;
  levels.devices.push_back(device);
  EXPECT_THAT(Metrics(&kClock).Text(levels),
              HasSubstr("sru_state_budget_bytes{device=\"5\"} 16000000"));
}

TEST(MetricsTest, DescribesTranslations) {
  Metrics metrics(&kClock);
  const auto model = metrics.ForModel(
      "mt", 1, 4096, [](calls::MethodId method) { return method == calls::MethodId::kTranslate; });
  std::string text = metrics.Text(ServerLevels());
  EXPECT_THAT(text, HasSubstr("sru_decode_batch_sequences_count{model=\"mt\",version=\"1\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("sru_time_to_first_token_seconds")));
  model->OnStep(7, absl::Milliseconds(30));
  ServerLevels levels;
  levels.models.resize(2);
  levels.models[0].model = "mt";
  levels.models[0].version = 1;
  batching::StepStats stats;
  stats.running = 2;
  stats.waiting = 3;
  stats.new_tokens = 60;
  levels.models[0].translations = stats;
  levels.models[1].model = "trec";
  text = metrics.Text(levels);
  ExpectLines(text, {"sru_decode_batch_sequences_sum{model=\"mt\",version=\"1\"} 7",
                     "sru_compute_duration_seconds_count{model=\"mt\",version=\"1\"} 1",
                     "sru_translate_sentences{model=\"mt\",version=\"1\",state=\"running\"} 2",
                     "sru_translate_sentences{model=\"mt\",version=\"1\",state=\"waiting\"} 3",
                     "sru_generated_tokens_total{model=\"mt\",version=\"1\"} 60"});
  EXPECT_THAT(text, Not(HasSubstr("sru_translate_sentences{model=\"trec\"")));
}

TEST(MetricsTest, ShowsPrefixCaches) {
  ServerLevels levels;
  AddModel(&levels, "trec");
  ServerLevels::ModelLevels& model = AddModel(&levels, "lm");
  model.prefixes.emplace();
  model.prefixes->hits = 1;
  model.prefixes->misses = 2;
  model.prefixes->hit_tokens = 3;
  model.prefixes->evictions = 4;
  model.prefixes->states = 5;
  model.prefixes->bytes = 6;
  const std::string text = Metrics(&kClock).Text(levels);
  ExpectLines(text, {"sru_prefix_cache_hits_total{model=\"lm\",version=\"1\"} 1",
                     "sru_prefix_cache_misses_total{model=\"lm\",version=\"1\"} 2",
                     "sru_prefix_cache_hit_tokens_total{model=\"lm\",version=\"1\"} 3",
                     "sru_prefix_cache_evictions_total{model=\"lm\",version=\"1\"} 4",
                     "sru_prefix_cache_states{model=\"lm\",version=\"1\"} 5",
                     "sru_prefix_cache_bytes{model=\"lm\",version=\"1\"} 6"});
  EXPECT_THAT(text, Not(HasSubstr("sru_prefix_cache_hits_total{model=\"trec\"")));
}

}  // namespace
}  // namespace sru::server::telemetry
