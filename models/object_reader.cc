#include "models/object_reader.h"

#include <limits>
#include <utility>

#include "base/status.h"
#include "models/files/json.h"

namespace sru::models {

using nlohmann::json;

std::optional<int64_t> AsInt64(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

ObjectReader::ObjectReader(const json& object, const std::string& source, std::string path)
    : object_(object), source_(source), path_(std::move(path)) {
  if (!object_.is_object()) Fail("", "an object", object_);
}

bool ObjectReader::Has(const std::string& key) {
  known_.insert(key);
  return object_.is_object() && object_.contains(key);
}

const json* ObjectReader::Required(const std::string& key, const std::string& expected) {
  if (Has(key)) return &object_[key];
  if (status_.ok()) {
    status_ = InvalidArgument(source_, ": key '", Path(key), "' is missing; expected ", expected);
  }
  return nullptr;
}

void ObjectReader::Integer(const std::string& key, int low, int high, int* value) {
  const std::string expected = absl::StrCat("an integer from ", low, " to ", high);
  const json* found = Required(key, expected);
  if (found == nullptr) return;
  const std::optional<int64_t> number = AsInt64(*found);
  if (!number.has_value() || *number < low || *number > high) return Fail(key, expected, *found);
  *value = static_cast<int>(*number);
}

void ObjectReader::Boolean(const std::string& key, bool* value) {
  const json* found = Required(key, "true or false");
  if (found == nullptr) return;
  if (!found->is_boolean()) return Fail(key, "true or false", *found);
  *value = found->get<bool>();
}

void ObjectReader::OptionalBoolean(const std::string& key, bool* value) {
  if (Has(key)) Boolean(key, value);
}

void ObjectReader::Number(const std::string& key, const std::string& expected, double low,
                          double high, double* value) {
  const json* found = Required(key, expected);
  if (found == nullptr) return;
  if (found->is_number() && found->get<double>() >= low && found->get<double>() <= high) {
    *value = found->get<double>();
  } else {
    Fail(key, expected, *found);
  }
}

void ObjectReader::OptionalString(const std::string& key, std::string* value) {
  if (!Has(key)) return;
  const json& found = object_[key];
  if (found.is_string()) {
    *value = found.get<std::string>();
  } else {
    Fail(key, "a string", found);
  }
}

void ObjectReader::Array(const std::string& key, const std::string& expected, size_t least,
                         size_t most, absl::FunctionRef<bool(const json&)> take) {
  const json* array = Required(key, expected);
  if (array == nullptr) return;
  if (!array->is_array() || array->size() < least || array->size() > most) {
    return Fail(key, expected, *array);
  }
  for (size_t i = 0; i < array->size(); ++i) {
    if (!take((*array)[i])) return Fail(absl::StrCat(key, "[", i, "]"), expected, (*array)[i]);
  }
}

void ObjectReader::Fail(const std::string& key, const std::string& expected, const json& found) {
  if (!status_.ok()) return;
  status_ = InvalidArgument(source_, ": key '", Path(key), "': expected ", expected, ", found ",
                            JsonExcerpt(found));
}

std::string ObjectReader::Path(const std::string& key) const {
  return absl::StrCat(path_, path_.empty() || key.empty() ? "" : ".", key);
}

absl::Status ObjectReader::Finish() {
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (known_.count(key) == 0) {
      return InvalidArgument(source_, ": unknown key ", Quoted(Path(key)), "; expected one of ",
                             absl::StrJoin(known_, ", "));
    }
  }
  return absl::OkStatus();
}

}  // namespace sru::models
