// Predict of a program (program.h): log-probabilities, the most probable symbols of rows and picks, from
// logits that are computed a block at a time. Of each row a running maximum and a sum of exponentials
// is kept, its candidates in a heap and the best symbol. The logits of a row are stored as a whole
// only where a symbol is sampled from them.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/programs/program_pick.h"
#include "kernels/cpu/programs/program_product.h"
#include "kernels/program.h"

namespace sru::kernels::cpu {

// What a program's Predict multiplies and adds. Immutable and thread-safe.
struct Prediction {
  // Throws dnnl::error and std::bad_alloc.
  Prediction(const ops::Predict& op, int width, const Arithmetic& arithmetic, ProductShapes& shapes,
             WeightSource* source);

  size_t bytes() const { return product.bytes() + bias.bytes(); }

  BlockedProduct product;
  AlignedBuffer bias;  // [product.padded_n()], -infinity in the padding
};

// The memory of one thread. Not thread-safe.
class PredictThread {
 public:
  // Makes room for `prediction`; for sampling from at most `sampled_rows` rows of a batch.
  void Add(const Prediction& prediction, int sampled_rows);

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
    float* unadjusted = nullptr;  // scratch: for each adjustment its symbol's logit
  };

  // How many of `rows` rows, at least one, there is memory for in one Run().
  int RowsThatFit(const Prediction& prediction, const Call& call, const int32_t* which,
                  int rows) const;

  // Computes the rows that `which` names, at most product.group_rows() of them. `after_piece` is
  // called now and then. Throws dnnl::error.
  template <typename AfterPiece>
  void Run(const Prediction& prediction, const Call& call, const int32_t* which, int rows,
           ProductThread& products, const AfterPiece& after_piece) {
    Start(prediction, call, which, rows);
    products.Multiply(prediction.product, call.x, which, rows, [&](const ProductPiece& piece) {
      TakePiece(prediction, call, which, piece);
      after_piece();
    });
    Finish(call, which, rows);
    if (call.picked == nullptr) return;
    for (int i = 0; i < rows; ++i) {
      FinishPick(prediction, call, which[i], rows_[i]);
      after_piece();
    }
  }

  size_t bytes() const { return rows_.size() * sizeof(Row) + logits_.bytes() + picker_.bytes(); }

 private:
  // Over the columns so far: the largest logit and the sum of e^(logit - largest).
  struct Row {
    float largest;
    double sum;
    float target;    // the target's logit
    int candidates;  // in the heap
    // Of a row of which a symbol is picked: the largest z' and the first symbol with it, the next
    // adjustment, and the logits, null of a row that is not sampled.
    float best;
    int32_t best_id;
    int adjustment;
    float* logits;
  };

  static double LogSum(const Row& row);
  void Start(const Prediction& prediction, const Call& call, const int32_t* which, int rows);
  void TakePiece(const Prediction& prediction, const Call& call, const int32_t* which,
                 const ProductPiece& piece);
  // Adjusts a piece of a row, and looks for the best symbol of it, whose largest logit is given.
  void TakeBest(const Call& call, size_t t, const ProductPiece& piece, float largest, float* z,
                Row* row);
  void Finish(const Call& call, const int32_t* which, int rows);
  void FinishPick(const Prediction& prediction, const Call& call, size_t t, const Row& row);

  std::vector<Row> rows_;
  AlignedBuffer logits_;  // of rows that are sampled, [rows][prediction.product.padded_n()]
  SymbolPicker picker_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PREDICT_H_
