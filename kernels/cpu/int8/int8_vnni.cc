// Products by int8 weights with VPDPBUSD, which adds four products of an unsigned and a signed byte
// to an int32. Compiled for AVX512_VNNI.
#include <immintrin.h>

#include "kernels/cpu/int8/byte_kernel-inl.h"
#include "kernels/cpu/int8/int8_kernel-inl.h"

namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Adds products of unsigned and signed bytes to sums. With the intrinsic GCC 12 copies all sums of
// a tile around at each step, which costs a third of the speed.
HWY_INLINE void AddBytes(__m512i a, __m512i b, __m512i* sums) {
  __m512i now = *sums;
  __asm__("vpdpbusd %2, %1, %0" : "+v"(now) : "v"(a), "v"(b));
  *sums = now;
}

// A value of x is 256 high + low, each a signed byte.
struct VnniDot {
  static constexpr int kDepth = 4;
  // 16 sums at most: with more the compiler does not keep them in the 32 registers.
  static constexpr int kMaxRows = 4;
  static constexpr int Vectors(int rows) { return rows <= 2 ? 4 : 2; }

  struct Sums {
    __m512i high;
    __m512i low;
  };
  static HWY_INLINE Sums Zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }

  static HWY_INLINE __m512i Load(const uint8_t* weights) { return _mm512_loadu_si512(weights); }

  static HWY_INLINE void Add(__m512i weights, const int16_t* x, Sums* sums) {
    int32_t bytes[2];
    __builtin_memcpy(bytes, x, sizeof(bytes));
    AddBytes(weights, _mm512_set1_epi32(bytes[0]), &sums->high);
    AddBytes(weights, _mm512_set1_epi32(bytes[1]), &sums->low);
  }

  // The bits past the 32nd that are lost on the way cancel out: the total is an int32.
  static HWY_INLINE Int8IntVector Total(const Sums& sums) {
    return hn::Add(hn::ShiftLeft<8>(Int8IntVector{sums.high}), Int8IntVector{sums.low});
  }

  // Of each four values first the high bytes, then the low ones.
  static HWY_INLINE void Store(Int8IntVector q, int16_t* x) {
    const Int8IntVector high = hn::ShiftRight<8>(hn::Add(q, hn::Set(Int8Int(), 128)));
    // With full masks: the plain intrinsics draw false warnings from GCC 12.
    const __m128i high_bytes = _mm512_maskz_cvtepi32_epi8(0xffff, high.raw);
    const __m128i low_bytes = _mm512_maskz_cvtepi32_epi8(0xffff, q.raw);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), _mm_unpacklo_epi32(high_bytes, low_bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x + 8), _mm_unpackhi_epi32(high_bytes, low_bytes));
  }
};

// A value of x is one signed byte, or for a table an unsigned one.
struct VnniByteDot {
  static constexpr int kDepth = 4;
  static constexpr int kMaxRows = 4;  // 16 sums at most, as above
  static constexpr int Vectors(int /*rows*/) { return 4; }

  using Sums = __m512i;
  static HWY_INLINE Sums Zero() { return _mm512_setzero_si512(); }
  static HWY_INLINE __m512i Load(const uint8_t* weights) { return _mm512_loadu_si512(weights); }
  static HWY_INLINE void Add(__m512i weights, const int8_t* x, Sums* sums) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof(four));
    AddBytes(weights, _mm512_set1_epi32(four), sums);
  }
  static HWY_INLINE Int8IntVector Total(Sums sums) { return Int8IntVector{sums}; }

  using X = int8_t;
  using T = uint8_t;
  static HWY_INLINE void StoreX(Int8IntVector r, int8_t* x) {
    // With a full mask, as above.
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), _mm512_maskz_cvtepi32_epi8(0xffff, r.raw));
  }
  static HWY_INLINE void StoreT(Int8IntVector r, uint8_t* x) {
    StoreX(r, reinterpret_cast<int8_t*>(x));
  }

  using Row = __m512i;
  static constexpr size_t RowStep() { return 64; }
  static HWY_INLINE Row ZeroRow() { return _mm512_setzero_si512(); }
  static HWY_INLINE void AddRow(const int8_t* weights, const uint8_t* x, Row* row) {
    AddBytes(_mm512_loadu_si512(x), _mm512_loadu_si512(weights), row);
  }
  static HWY_INLINE void SumsOf4(const Row* rows, int32_t* sums) {
    const auto add_pairs = [](__m512i low, __m512i high) { return _mm512_add_epi32(low, high); };
    const __m512i a = add_pairs(_mm512_maskz_unpacklo_epi32(0xffff, rows[0], rows[1]),
                                _mm512_maskz_unpackhi_epi32(0xffff, rows[0], rows[1]));
    const __m512i b = add_pairs(_mm512_maskz_unpacklo_epi32(0xffff, rows[2], rows[3]),
                                _mm512_maskz_unpackhi_epi32(0xffff, rows[2], rows[3]));
    // In each quarter a sum of a quarter of each row.
    const __m512i quarters =
        add_pairs(_mm512_maskz_unpacklo_epi64(0xff, a, b), _mm512_maskz_unpackhi_epi64(0xff, a, b));
    const __m256i halves = _mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(0xff, quarters, 0),
                                            _mm512_maskz_extracti64x4_epi64(0xff, quarters, 1));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(sums),
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
  }
};

ByteRow Round(const float* x, int k, int padded, float a, bool for_table, void* rounded) {
  return RoundBytes<VnniByteDot>(x, k, padded, a, for_table, rounded);
}
void MultiplyBytesVnni(const ByteCall& call) { MultiplyBytes<VnniByteDot>(call); }
void MultiplyTableVnni(const ByteTableCall& call) { MultiplyByteTable<VnniByteDot>(call); }

const char* Name() { return "AVX512_VNNI"; }
void Multiply(const Int8Call& call) { MultiplyInt8<VnniDot>(call); }

}  // namespace
}  // namespace HWY_NAMESPACE

const Int8Kernel& VnniInt8Kernel() {
  using namespace HWY_NAMESPACE;  // NOLINT: its kernels
  static_assert(VnniDot::kDepth == VnniByteDot::kDepth);
  static constexpr Int8Kernel kKernel = {
      Name,  VnniDot::kDepth,   Multiply,         sizeof(VnniByteDot::X),
      Round, MultiplyBytesVnni, MultiplyTableVnni};
  return kKernel;
}

}  // namespace sru::kernels::cpu
