/* numbers.h : what PTX computes, to the bit: NaN of f32 is one number, nothing is flushed to zero but
 * where an instruction says so, products and sums are rounded to nearest apart, shifts clamp. */
#ifndef PTX_NUMBERS_H
#define PTX_NUMBERS_H

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <limits>
#include <type_traits>

namespace ptx {

template <typename To, typename From> To bits(From x) {
    To out;
    static_assert(sizeof out == sizeof x, "bits of another size");
    memcpy(&out, &x, sizeof out);
    return out;
}

/* What arithmetic gives: of NaN the canonical one. */
inline float canonical(float x) {
    return x != x ? bits<float>(0x7fffffffu) : x;
}
inline double canonical(double x) {
    return x;
}
template <typename T> typename std::enable_if<std::is_integral<T>::value, T>::type canonical(T x) {
    return x;
}

/* Whole numbers wrap around: the compiler is told -fwrapv. */
struct add {
    template <typename T> T operator()(T a, T b) const { return canonical((T)(a + b)); }
};
struct sub {
    template <typename T> T operator()(T a, T b) const { return canonical((T)(a - b)); }
};
struct mul {
    template <typename T> T operator()(T a, T b) const { return canonical((T)(a * b)); }
};
struct divide {
    template <typename T> T operator()(T a, T b) const {
        if constexpr (std::is_integral<T>::value) {
            if (b == 0) return (T)-1; /* as devices do; PTX does not say */
            if (std::is_signed<T>::value && b == (T)-1) return (T)(0 - a);
        }
        return canonical((T)(a / b));
    }
};
struct remainder {
    template <typename T> T operator()(T a, T b) const {
        if (b == 0) return a;
        return std::is_signed<T>::value && b == (T)-1 ? (T)0 : (T)(a % b);
    }
};
template <typename Wide> struct mul_wide {
    template <typename T> Wide operator()(T a, T b) const { return (Wide)((Wide)a * (Wide)b); }
};
__extension__ typedef __int128 wide_signed;
__extension__ typedef unsigned __int128 wide_unsigned;
struct mul_high {
    template <typename T> T operator()(T a, T b) const {
        typedef
            typename std::conditional<std::is_signed<T>::value, wide_signed, wide_unsigned>::type
                wide;
        return (T)((wide)a * (wide)b >> 8 * sizeof(T));
    }
};
template <typename Wide> struct mad_wide {
    template <typename T> Wide operator()(T a, T b, Wide c) const {
        return (Wide)((Wide)a * (Wide)b + c);
    }
};
struct mad {
    template <typename T> T operator()(T a, T b, T c) const { return (T)(a * b + c); }
};
struct fused {
    float operator()(float a, float b, float c) const { return canonical(fmaf(a, b, c)); }
    double operator()(double a, double b, double c) const { return fma(a, b, c); }
};
/* Rounded down. */
struct fused_down {
    float operator()(float a, float b, float c) const {
        volatile float x = a, y = b, z = c;
        fesetround(FE_DOWNWARD);
        volatile float out = fmaf(x, y, z);
        fesetround(FE_TONEAREST);
        return canonical(out);
    }
};
/* The number, where one is NaN; -0 is less than 0. */
struct least {
    template <typename T> T operator()(T a, T b) const {
        if (a != a) return canonical(b);
        if (a == b && std::is_floating_point<T>::value) return std::signbit((double)a) ? a : b;
        return b < a ? b : a;
    }
};
struct greatest {
    template <typename T> T operator()(T a, T b) const {
        if (a != a) return canonical(b);
        if (a == b && std::is_floating_point<T>::value) return std::signbit((double)a) ? b : a;
        return a < b ? b : a;
    }
};
struct both {
    template <typename T> T operator()(T a, T b) const { return (T)(a & b); }
};
struct either {
    template <typename T> T operator()(T a, T b) const { return (T)(a | b); }
};
struct differ {
    template <typename T> T operator()(T a, T b) const { return (T)(a ^ b); }
};
struct invert {
    template <typename T> T operator()(T a) const { return (T)~a; }
    bool operator()(bool a) const { return !a; }
};
struct negate {
    template <typename T> T operator()(T a) const { return (T)-a; }
};
struct magnitude {
    template <typename T> T operator()(T a) const { return (T)(std::signbit((double)a) ? -a : a); }
};
struct left {
    template <typename T> T operator()(T a, uint32_t n) const {
        return n >= 8 * sizeof a ? (T)0 : (T)(a << n);
    }
};
struct right {
    template <typename T> T operator()(T a, uint32_t n) const {
        return n >= 8 * sizeof a ? (T)(std::is_signed<T>::value && a >> (8 * sizeof a - 1) ? -1 : 0)
                                 : (T)(a >> n);
    }
};
struct population {
    template <typename T> uint32_t operator()(T a) const {
        return (uint32_t)__builtin_popcountll(a);
    }
};
struct leading {
    template <typename T> uint32_t operator()(T a) const {
        return a ? (uint32_t)(__builtin_clzll(a) - 64 + 8 * (int)sizeof a) : 8 * (uint32_t)sizeof a;
    }
};
/* bfind.shiftamt: by how much the highest bit would be shifted to the top. */
struct find_highest {
    uint32_t operator()(uint32_t a) const { return a ? (uint32_t)__builtin_clz(a) : ~0u; }
};
struct reverse {
    template <typename T> T operator()(T a) const {
        T out = 0;
        for (unsigned i = 0; i < 8 * sizeof a; i++)
            out = (T)(out | (a >> i & 1) << (8 * sizeof a - 1 - i));
        return out;
    }
};
struct insert {
    template <typename T> T operator()(T a, T b, uint32_t at, uint32_t n) const {
        const uint32_t width = 8 * sizeof a;
        at &= 255, n &= 255;
        if (at >= width || n == 0) return b;
        T mask = n >= width ? (T) ~(T)0 : (T)(((T)1 << n) - 1);
        return (T)((b & ~(T)(mask << at)) | ((T)(a & mask) << at));
    }
};
struct extract {
    template <typename T> T operator()(T a, uint32_t at, uint32_t n) const {
        const uint32_t width = 8 * sizeof a;
        at &= 255, n &= 255;
        T out = 0;
        if (n == 0) return 0;
        uint32_t top = at + n - 1 < width - 1 ? at + n - 1 : width - 1;
        bool sign = std::is_signed<T>::value && (a >> top & 1);
        for (uint32_t i = 0; i < width; i++) {
            T bit = i < n && at + i < width ? (T)(a >> (at + i) & 1) : (T)sign;
            out = (T)(out | (T)(bit << i));
        }
        return out;
    }
};
/* prmt.b32: each byte of the result is one of eight, or eight copies of its sign. */
struct permute {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t select) const {
        uint64_t all = (uint64_t)b << 32 | a;
        uint32_t out = 0;
        for (int i = 0; i < 4; i++) {
            uint32_t s = select >> (4 * i) & 15;
            uint8_t byte = (uint8_t)(all >> (8 * (s & 7)));
            if (s & 8) byte = byte & 0x80 ? 0xff : 0;
            out |= (uint32_t)byte << (8 * i);
        }
        return out;
    }
};
template <bool kLeft, bool kWrap> struct funnel {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t n) const {
        uint64_t all = (uint64_t)b << 32 | a;
        n = kWrap ? n & 31 : n > 32 ? 32 : n;
        return kLeft ? (uint32_t)(all << n >> 32) : (uint32_t)(all >> n);
    }
};
struct table {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c, uint32_t t) const {
        uint32_t out = 0;
        for (int i = 0; i < 8; i++)
            if (t >> i & 1) out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        return out;
    }
};
template <typename A, typename B> struct dot {
    int32_t operator()(uint32_t a, uint32_t b, int32_t c) const {
        for (int i = 0; i < 32; i += 8) c += (int32_t)(A)(a >> i) * (int32_t)(B)(b >> i);
        return c;
    }
};
struct choose {
    template <typename T> T operator()(T a, T b, bool first) const { return first ? a : b; }
};

/* --- comparisons --- */

struct equal {
    template <typename T> bool operator()(T a, T b) const { return a == b; }
};
struct not_equal { /* false of NaN */
    template <typename T> bool operator()(T a, T b) const { return a < b || a > b; }
};
struct less {
    template <typename T> bool operator()(T a, T b) const { return a < b; }
};
struct less_equal {
    template <typename T> bool operator()(T a, T b) const { return a <= b; }
};
struct greater {
    template <typename T> bool operator()(T a, T b) const { return a > b; }
};
struct greater_equal {
    template <typename T> bool operator()(T a, T b) const { return a >= b; }
};
struct either_nan {
    template <typename T> bool operator()(T a, T b) const { return a != a || b != b; }
};
template <typename F> struct or_nan {
    template <typename T> bool operator()(T a, T b) const { return a != a || b != b || F()(a, b); }
};
template <typename F> struct opposite {
    template <typename T> bool operator()(T a, T b) const { return !F()(a, b); }
};

/* --- other formats --- */

inline float from_half(uint16_t h) {
    return (float)bits<_Float16>(h);
}
inline uint16_t to_half(float x) {
    return x != x ? (uint16_t)0x7fff : bits<uint16_t>((_Float16)x);
}
inline float from_bfloat(uint16_t b) {
    return bits<float>((uint32_t)b << 16);
}
inline uint16_t to_bfloat(float x) {
    uint32_t u = bits<uint32_t>(x);
    return x != x ? (uint16_t)0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

template <typename To> struct convert {
    template <typename T> To operator()(T x) const { return (To)x; }
};
struct half_to_float {
    float operator()(uint16_t x) const { return from_half(x); }
};
struct float_to_half {
    uint16_t operator()(float x) const { return to_half(x); }
};
struct float_to_bfloat {
    uint16_t operator()(float x) const { return to_bfloat(x); }
};
template <uint16_t F(float)> struct to_pair { /* the second operand is the lower half */
    uint32_t operator()(float high, float low) const { return (uint32_t)F(high) << 16 | F(low); }
};
struct to_nearest {
    double operator()(double x) const { return nearbyint(x); }
};
struct to_zero {
    double operator()(double x) const { return trunc(x); }
};
struct to_below {
    double operator()(double x) const { return floor(x); }
};
struct to_above {
    double operator()(double x) const { return ceil(x); }
};
/* To a whole number, which clamps; NaN gives 0, or in 64 bits the highest bit. */
template <typename To, typename Round> struct to_whole {
    template <typename T> To operator()(T x) const {
        double y = Round()((double)x);
        const double most = ldexp(1, 8 * (int)sizeof(To) - std::is_signed<To>::value);
        if (y != y) return sizeof(To) == 8 ? (To)(1ull << 63) : (To)0;
        if (y >= most) return std::numeric_limits<To>::max();
        if (y < (double)std::numeric_limits<To>::min()) return std::numeric_limits<To>::min();
        return (To)y;
    }
};
template <typename Round> struct to_round {
    template <typename T> T operator()(T x) const { return (T)Round()((double)x); }
};
struct saturate {
    float operator()(float x) const { return x > 1 ? 1.0f : x > 0 ? x : 0.0f; }
};
template <typename F> struct pairwise { /* of f16 */
    uint32_t operator()(uint32_t a, uint32_t b) const {
        uint32_t low = F()((uint16_t)a, (uint16_t)b);
        return (uint32_t)F()((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16 | low;
    }
};
struct half_sub {
    uint16_t operator()(uint16_t a, uint16_t b) const {
        return to_half(from_half(a) - from_half(b));
    }
};
struct half_add {
    uint16_t operator()(uint16_t a, uint16_t b) const {
        return to_half(from_half(a) + from_half(b));
    }
};
struct half_is_nan { /* 1.0, where one is */
    uint16_t operator()(uint16_t a, uint16_t b) const {
        return either_nan()(from_half(a), from_half(b)) ? to_half(1) : (uint16_t)0;
    }
};
template <typename F> struct half_nan { /* NaN, where one is */
    uint16_t operator()(uint16_t a, uint16_t b) const {
        float x = from_half(a), y = from_half(b);
        return either_nan()(x, y) ? (uint16_t)0x7fff : to_half(F()(x, y));
    }
};
struct reciprocal {
    template <typename T> T operator()(T x) const { return canonical((T)(1 / x)); }
};
/* The upper half of the bits; less than a device's, whose error PTX bounds. */
struct reciprocal_rough {
    double operator()(double x) const { return bits<double>(bits<uint64_t>(1 / x) >> 32 << 32); }
};
struct root {
    float operator()(float x) const { return canonical(sqrtf(x)); }
    double operator()(double x) const { return sqrt(x); }
};
inline float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
/* Devices are 2 units in the last place off at most. */
struct power_of_2 {
    float operator()(float x) const { return canonical(flush(exp2f(flush(x)))); }
};
struct log_of_2 {
    float operator()(float x) const { return canonical(log2f(flush(x))); }
};
struct same {
    template <typename T> T operator()(T x) const { return x; }
};

} // namespace ptx

#endif
