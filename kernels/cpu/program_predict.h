// Predict of a program (program.h): log-probabilities and the most probable symbols of rows, from
// logits that are computed a block at a time and never stored as a whole. Of each row a running
// maximum and a sum of exponentials is kept, and its candidates in a heap.
#ifndef SRU_KERNELS_CPU_PROGRAM_PREDICT_H_
#define SRU_KERNELS_CPU_PROGRAM_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/program_product.h"
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
  // Makes room for `prediction`.
  void Add(const Prediction& prediction);

  // What is asked of the rows of a batch; null = not asked for.
  struct Call {
    const float* x = nullptr;          // [rows][width]
    const int32_t* targets = nullptr;  // [rows]
    float* log_prob = nullptr;         // [rows]; with targets
    const int32_t* counts = nullptr;   // [rows]
    Candidate* candidates = nullptr;   // [rows][max_candidates]; with counts
    int max_candidates = 0;
  };

  // Computes the rows that `which` names, at most product.group_rows() of them. `after_piece` is
  // called now and then. Throws dnnl::error.
  template <typename AfterPiece>
  void Run(const Prediction& prediction, const Call& call, const int32_t* which, int rows,
           ProductThread& products, const AfterPiece& after_piece) {
    Start(call, which, rows);
    products.Multiply(prediction.product, call.x, which, rows, [&](const ProductPiece& piece) {
      TakePiece(prediction, call, which, piece);
      after_piece();
    });
    Finish(call, which, rows);
  }

  size_t bytes() const { return rows_.size() * sizeof(Row); }

 private:
  // Over the columns so far: the largest logit and the sum of e^(logit - largest).
  struct Row {
    float largest;
    double sum;
    float target;    // the target's logit
    int candidates;  // in the heap
  };

  void Start(const Call& call, const int32_t* which, int rows);
  void TakePiece(const Prediction& prediction, const Call& call, const int32_t* which,
                 const ProductPiece& piece);
  void Finish(const Call& call, const int32_t* which, int rows);

  std::vector<Row> rows_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAM_PREDICT_H_
