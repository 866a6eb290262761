#include "server/rest/json_message_form.h"

#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

class MessageForms {
 public:
  const MessageForm& Of(const Descriptor& type) {
    MutexLock lock(&mutex_);
    return Make(type);
  }

 private:
  const MessageForm& Make(const Descriptor& type) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto [place, is_new] = forms_.try_emplace(&type);
    MessageForm& form = place->second;
    if (!is_new) return form;
    form.type = &type;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      FieldForm& made = form.fields.emplace_back();
      made.number = field.number();
      made.name = field.name();
      made.camel_name = field.json_name();
      made.key = absl::StrCat(",\"", made.name, "\":");
      made.type = field.type();
      made.is_list = field.is_repeated();
      made.is_map = field.is_map();
      made.is_packed = field.is_packed();
      made.restarts = i == 0 || field.number() < type.field(i - 1)->number();
      made.is_optional = !field.is_repeated() && field.has_presence();
      made.oneof = field.containing_oneof();
      made.values = field.enum_type();
      if (field.message_type() != nullptr) made.message = &Make(*field.message_type());
    }
    return form;
  }

  Mutex mutex_;
  std::unordered_map<const Descriptor*, MessageForm> forms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

const MessageForm& FormOf(const Descriptor& type) {
  static auto* const forms = new MessageForms();
  return forms->Of(type);
}

}  // namespace sru::server::rest
