// Predict of a program (program.h): log-probabilities, the most probable symbols of rows and picks,
// from logits that are computed a block at a time. Of each row a running maximum and a sum of
// exponentials is kept, its candidates in a heap and the best symbol. The logits of a row are
// stored as a whole only where a symbol is sampled from them.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/int8/byte_product.h"
#include "kernels/cpu/programs/program_pick.h"
#include "kernels/cpu/programs/program_product.h"
#include "kernels/cpu/programs/row_table.h"
#include "kernels/program.h"

namespace sru::kernels::cpu {

// What a program's Predict multiplies and adds. Immutable and thread-safe.
struct Prediction {
  // `table` has the weights, or is null: they are packed then. Throws dnnl::error and
  // std::bad_alloc.
  Prediction(const ops::Predict& op, int width, const Arithmetic& arithmetic,
             std::shared_ptr<const RowTable> table, WeightSource* source);

  // Rows that are computed together.
  int group_rows() const { return product ? product->group_rows() : kTableRows; }
  // The floating-point operations of rows with `symbols` symbols in total.
  double operations(int64_t symbols) const { return 2.0 * static_cast<double>(symbols) * width; }
  size_t bytes() const {
    return (product ? product->bytes() : 0) + bias.bytes() + (scales ? scales->bytes() : 0);
  }

  static constexpr int kTableRows = 32;
  static_assert(kTableRows <= kByteRows);

  int width;
  Rounding rounding;                      // of rows of x that a table multiplies
  std::optional<BlockedProduct> product;  // or
  std::shared_ptr<const RowTable> table;
  std::optional<ByteScales> scales;  // of a table of rounded weights, and what multiplies by it
  const Int8Kernel* kernel = nullptr;
  AlignedBuffer bias;  // [vocabulary_size and padding], -infinity in the padding
};

// The memory of one thread. Not thread-safe.
class PredictThread {
 public:
  // Makes room for `prediction`, before LayOut(); for sampling from at most `sampled_rows` rows of
  // a batch.
  void Add(const Prediction& prediction, int sampled_rows);
  void LayOut(RunPlan* plan);

  // What is asked of the rows of a batch; null = not asked for.
  struct Call {
    const float* x = nullptr;          // [rows][width]
    const int32_t* targets = nullptr;  // [rows]
    float* log_prob = nullptr;         // [rows]; with targets
    const int32_t* counts = nullptr;   // [rows]
    Candidate* candidates = nullptr;   // [rows][max_candidates]; with counts
    int max_candidates = 0;
    const Sampling* sampling = nullptr;  // [rows]
    Candidate* picked = nullptr;         // [rows]; with sampling
    // Where there are some: adjustments [offsets[t], offsets[t + 1]) are those of row t.
    const int32_t* adjusted_offsets = nullptr;
    const Adjustment* adjustments = nullptr;
    float* unadjusted = nullptr;                  // scratch: for each adjustment its symbol's logit
    const std::vector<int32_t>* never = nullptr;  // no candidates; null = none are
  };

  // The symbols of rows.
  struct Choices {
    const int32_t* ids = nullptr;  // ascending; null = all, the first `count` numbers
    int count = 0;
  };

  // How many of `rows` rows, at least one, there is memory for in one Run().
  int RowsThatFit(const Prediction& prediction, const Call& call, const int32_t* which,
                  int rows) const;

  // Computes the rows that `which` names, at most group_rows() of them. `choices` has ids only if
  // the prediction has a table. `after_piece` is called now and then. Throws dnnl::error.
  template <typename AfterPiece>
  void Run(const Prediction& prediction, const Call& call, const Choices& choices,
           const int32_t* which, int rows, ProductThread& products, const AfterPiece& after_piece) {
    Start(prediction, call, choices, which, rows);
    if (prediction.table != nullptr) {
      TakeRows(prediction, call, which, rows);
      ProductPiece piece;
      piece.rows = rows;
      piece.z = z_.data();
      for (; Multiply(prediction, choices, &piece); piece.first += piece.columns) {
        TakePiece(bias_.data(), call, which, piece);
        after_piece();
      }
    } else {
      products.Multiply(*prediction.product, call.x, which, rows, [&](const ProductPiece& piece) {
        TakePiece(prediction.bias.data() + piece.first, call, which, piece);
        after_piece();
      });
    }
    Finish(call, choices, which, rows);
    if (call.picked == nullptr) return;
    for (int i = 0; i < rows; ++i) {
      FinishPick(prediction, call, which[i], rows_[i]);
      after_piece();
    }
  }

 private:
  // Over the columns so far: the largest logit and the sum of e^(logit - largest).
  struct Row {
    float largest;
    double sum;
    int target;  // the target's place among the symbols, and its logit
    float target_logit;
    int candidates;  // in the heap
    // Of a row of which a symbol is picked: the largest z' and the first symbol with it, the next
    // adjustment, and the logits, null of a row that is not sampled.
    float best;
    int32_t best_id;
    int adjustment;
    float* logits;
  };

  static double LogSum(const Row& row);
  void Start(const Prediction& prediction, const Call& call, const Choices& choices,
             const int32_t* which, int rows);
  // By a table:
  void TakeRows(const Prediction& prediction, const Call& call, const int32_t* which, int rows);
  // The logits of the next piece of symbols by the table, without bias, and the biases; false when
  // there is none.
  bool Multiply(const Prediction& prediction, const Choices& choices, ProductPiece* piece);
  // `bias` is that of the piece's columns.
  void TakePiece(const float* bias, const Call& call, const int32_t* which,
                 const ProductPiece& piece);
  // Adjusts a piece of a row, and looks for the best symbol of it, whose largest logit is given.
  void TakeBest(const Call& call, size_t t, const ProductPiece& piece, float largest, float* z,
                Row* row);
  void Finish(const Call& call, const Choices& choices, const int32_t* which, int rows);
  void FinishPick(const Prediction& prediction, const Call& call, size_t t, const Row& row);

  std::vector<Row> rows_;
  std::vector<int> never_;  // places of call.never among the symbols
  // For products with a table: logits [kTableRows][], biases, a row.
  RunArray<float> z_;
  RunArray<float> bias_;
  RunArray<float> scratch_;
  RunArray<float> x_;  // the rows that are multiplied
  ByteRows rounded_;
  RunArray<float> logits_;  // of rows that are sampled, [rows][prediction.bias.size()]
  SymbolPicker picker_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_
