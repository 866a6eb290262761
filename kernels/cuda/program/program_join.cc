#include <algorithm>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/program/program_pack.h"

namespace sru::kernels::cuda {
namespace {

class Joiner {
 public:
  explicit Joiner(PackedProgram* packed) : packed_(*packed) {}

  // Decides whose rows are rounded, and by what.
  void ChooseForms() {
    if (packed_.dtype == DataType::kFloat32) return;
    const size_t count = packed_.operations.size();
    std::vector<bool> reads_float(count);
    for (size_t i = 0; i < count; ++i) {
      const ValueId id = static_cast<ValueId>(i);
      const bool multiplies = As<ops::Linear>(id) != nullptr || TakesRows(id);
      for (const ValueId argument : packed(id).arguments) {
        const ValueId of = packed_.OriginalOf(argument);
        if (multiplies) {
          packed(of).rounded_users |= packed_.shape.users[i];
        } else {
          reads_float[of] = true;
        }
      }
    }
    for (const OutputSpec& output : packed_.program.outputs) {
      if (output.type == OutputType::kRows) reads_float[packed_.OriginalOf(output.value)] = true;
    }
    for (size_t i = 0; i < count; ++i) {
      const ValueId id = static_cast<ValueId>(i);
      PackedOperation& operation = packed(id);
      if (operation.rounded_users == 0) continue;
      const bool rounds_alone = As<ops::Normalize>(id) != nullptr || StoresRows(id);
      operation.keeps_float = reads_float[i] || !rounds_alone;
      // A scan writes one or the other, attention sums in float32.
      operation.rounds = As<ops::Normalize>(id) != nullptr || As<ops::Attend>(id) != nullptr ||
                         !operation.keeps_float;
    }
  }

  // All stacks of an axis with a state run in a batch with slots.
  void JoinStates(AxisId axis) {
    std::vector<ValueId> stacks;
    int size = 0;
    for (size_t i = 0; i < packed_.operations.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      const auto* const op = As<ops::Stack>(id);
      if (op == nullptr || op->state == kNone || packed_.shape.values[i].axis != axis) continue;
      stacks.push_back(id);
      const PackedStack& stack = *packed_.stacks[packed(id).stack];
      packed(id).state_begin = size;
      size += static_cast<int>(stack.layers.size()) * stack.output().stride();
    }
    for (size_t i = 0; i < stacks.size(); i += kMaxStackStates) {
      const size_t end = std::min(i + kMaxStackStates, stacks.size());
      const std::vector<ValueId> together(stacks.begin() + i, stacks.begin() + end);
      packed(together.front()).states_before = packed(together.back()).states_after = together;
    }
    packed_.state_sizes.push_back(size);
  }

  // The operations of one part, in their order.
  void Join(const std::vector<ValueId>& part) {
    for (size_t i = 0; i < part.size(); ++i) {
      JoinAppends(part, i);
      if (i > 0) JoinSum(part[i - 1], part[i]);
    }
    for (size_t i = 1; i < part.size(); ++i) JoinNorm(part[i - 1], part[i]);
    for (size_t i = 1; i < part.size(); ++i) JoinAppendToProduct(part, i);
  }

 private:
  PackedOperation& packed(ValueId id) { return packed_.operations[id]; }
  template <typename Op>
  const Op* As(ValueId id) const {
    return std::get_if<Op>(&packed_.program.operations[id]);
  }
  bool RunTogether(ValueId a, ValueId b) const {
    return packed_.shape.users[a] == packed_.shape.users[b];
  }

  // Whether an operation is a stack whose first layer reads rows as they are.
  bool TakesRows(ValueId id) {
    return As<ops::Stack>(id) != nullptr && IsPlain(packed_.stacks[packed(id).stack]->input);
  }

  // Whether an operation is a stack whose last layer can write its rows in the storage type, as any
  // other layer.
  bool StoresRows(ValueId id) {
    if (As<ops::Stack>(id) == nullptr) return false;
    const PackedStack& stack = *packed_.stacks[packed(id).stack];
    return ScanFinishesOutputs(stack.spec) && IsPlain(stack.output());
  }

  // A Normalize and the Add before it, whose sum it reads.
  void JoinSum(ValueId sum, ValueId id) {
    const auto* const normalize = As<ops::Normalize>(id);
    if (normalize == nullptr || normalize->x != sum || As<ops::Add>(sum) == nullptr) return;
    if (!RunTogether(sum, id) || packed(sum).rounded_users != 0) return;
    packed(sum).is_joined = true;
    packed(id).joined = {sum};
    const std::vector<ValueId>& read = packed(sum).arguments;
    packed(id).arguments.insert(packed(id).arguments.end(), read.begin(), read.end());
  }

  // A layer norm and the product behind it, which then reads what the norm does.
  void JoinNorm(ValueId norm, ValueId id) {
    if (As<ops::Normalize>(norm) == nullptr || !RunTogether(norm, id)) return;
    const auto* const linear = As<ops::Linear>(id);
    const bool is_product = linear != nullptr && linear->x == norm &&
                            (packed(id).first == kNone || packed(id).first == id);
    const bool begins_with_one = TakesRows(id) && As<ops::Stack>(id)->x == norm &&
                                 FirstProduct(*packed_.stacks[packed(id).stack]) != nullptr;
    if (!is_product && !begins_with_one) return;
    packed(id).norm_before = norm;
    packed(norm).done_by = id;
    const std::vector<ValueId>& read = packed(norm).arguments;
    packed(id).arguments.insert(packed(id).arguments.end(), read.begin(), read.end());
  }

  // An Append of a product's columns, or the last one of several, with no launch between the two.
  void JoinAppendToProduct(const std::vector<ValueId>& part, size_t at) {
    const auto* const append = As<ops::Append>(part[at]);
    if (append == nullptr || packed(part[at]).is_joined) return;
    const ValueId product = ProductOf(*append);
    size_t before = at;
    const auto launches_nothing = [&](ValueId id) {
      return packed(id).is_joined || (packed(id).first == product && id != product);
    };
    while (before > 0 && launches_nothing(part[before - 1])) --before;
    if (product == kNone || before == 0 || part[before - 1] != product) return;
    if (packed(product).norm_before == kNone) return;
    packed(product).append_after = part[at];
    packed(part[at]).done_by = product;
  }

  // The product that an Append's rows are columns of; kNone = they are all of a value.
  ValueId ProductOf(const ops::Append& append) { return packed(append.x).first; }

  // Appends from part[begin] on, to the last of which the others are joined.
  void JoinAppends(const std::vector<ValueId>& part, size_t begin) {
    const auto* const first = As<ops::Append>(part[begin]);
    if (first == nullptr || packed(part[begin]).is_joined || !packed(part[begin]).joined.empty())
      return;
    const ValueId product = ProductOf(*first);
    if (product == kNone) return;
    std::vector<ValueId> appends = {part[begin]};
    for (size_t i = begin + 1; i < part.size() && appends.size() < kMaxAppended; ++i) {
      const ValueId id = part[i];
      // A Linear whose rows the product has made launches nothing.
      if (packed(id).first == product && id != product) continue;
      const auto* const next = As<ops::Append>(id);
      if (next == nullptr || ProductOf(*next) != product || !RunTogether(id, part[begin])) break;
      if (packed_.shape.values[next->x].width != packed_.shape.values[first->x].width) break;
      appends.push_back(id);
    }
    const ValueId last = appends.back();
    appends.pop_back();
    for (const ValueId id : appends) packed(id).is_joined = true;
    packed(last).joined = appends;
  }

  PackedProgram& packed_;
};

}  // namespace

void JoinOperations(PackedProgram* packed) {
  std::vector<std::vector<ValueId>> parts(packed->operations.size());
  for (size_t i = 0; i < packed->operations.size(); ++i) {
    parts[packed->parts[packed->shape.values[i].axis]].push_back(static_cast<ValueId>(i));
  }
  Joiner joiner(packed);
  joiner.ChooseForms();
  for (size_t a = 0; a < packed->program.axes.size(); ++a) {
    joiner.JoinStates(static_cast<AxisId>(a));
  }
  for (const std::vector<ValueId>& part : parts) joiner.Join(part);
}

}  // namespace sru::kernels::cuda
