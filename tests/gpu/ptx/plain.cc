/* plain.cc : operations on the registers of one lane, by the names that PTX has for them. */
#include "ptx.h"
#include "numbers.h"

#include <utility>

namespace ptx {

namespace {

std::map<std::string, handler> handlers;

/* F of registers of these types, for each lane. */
template <typename F, typename Out, typename... In, size_t... k>
void run(warp &w, const instruction &i, uint32_t lanes, std::index_sequence<k...>) {
    cell *out = w.out(i.x[0]);
    const cell *in[] = {w.in(i.x[k + 1])...};
    each(lanes, [&](int lane) { put<Out>(out + lane, F()(get<In>(in[k] + lane)...)); });
}
template <typename F, typename Out, typename... In>
void operate(warp &w, const instruction &i, uint32_t lanes) {
    run<F, Out, In...>(w, i, lanes, std::index_sequence_for<In...>());
}
template <typename F, typename Out, typename... In> void define(const std::string &name) {
    handlers[name] = operate<F, Out, In...>;
}

/* --- of a type each --- */

template <typename T> void define_arithmetic(const std::string &t) {
    define<add, T, T, T>("add." + t);
    define<sub, T, T, T>("sub." + t);
    define<least, T, T, T>("min." + t);
    define<greatest, T, T, T>("max." + t);
    define<equal, bool, T, T>("setp.eq." + t);
    define<not_equal, bool, T, T>("setp.ne." + t);
    define<less, bool, T, T>("setp.lt." + t);
    define<less_equal, bool, T, T>("setp.le." + t);
    define<greater, bool, T, T>("setp.gt." + t);
    define<greater_equal, bool, T, T>("setp.ge." + t);
    define<same, T, T>("mov." + t);
    define<choose, T, T, T, bool>("selp." + t);
}

template <typename T> void define_bits(const std::string &t) {
    define<both, T, T, T>("and." + t);
    define<either, T, T, T>("or." + t);
    define<differ, T, T, T>("xor." + t);
    define<invert, T, T>("not." + t);
    define<same, T, T>("mov." + t);
    if (t == "pred") return;
    define<left, T, T, uint32_t>("shl." + t);
    define<right, T, T, uint32_t>("shr." + t);
    define<choose, T, T, T, bool>("selp." + t);
    define<equal, bool, T, T>("setp.eq." + t);
    define<not_equal, bool, T, T>("setp.ne." + t);
}

template <typename T> void define_words(const std::string &t) {
    define<population, uint32_t, T>("popc." + t);
    define<leading, uint32_t, T>("clz." + t);
    define<reverse, T, T>("brev." + t);
    define<insert, T, T, T, uint32_t, uint32_t>("bfi." + t);
}

template <typename T> void define_whole(const std::string &t) {
    define_arithmetic<T>(t);
    define<mul, T, T, T>("mul.lo." + t);
    define<mad, T, T, T, T>("mad.lo." + t);
    define<divide, T, T, T>("div." + t);
    define<remainder, T, T, T>("rem." + t);
    define<mul_high, T, T, T>("mul.hi." + t);
    define<right, T, T, uint32_t>("shr." + t);
    define<extract, T, T, uint32_t, uint32_t>("bfe." + t);
    define<convert<T>, T, uint8_t>("cvt." + t + ".u8");
    define<convert<T>, T, int8_t>("cvt." + t + ".s8");
    define<convert<T>, T, uint16_t>("cvt." + t + ".u16");
    define<convert<T>, T, int16_t>("cvt." + t + ".s16");
    define<convert<T>, T, uint32_t>("cvt." + t + ".u32");
    define<convert<T>, T, int32_t>("cvt." + t + ".s32");
    define<convert<T>, T, uint64_t>("cvt." + t + ".u64");
    define<convert<T>, T, int64_t>("cvt." + t + ".s64");
    define<convert<float>, float, T>("cvt.rn.f32." + t);
    define<convert<double>, double, T>("cvt.rn.f64." + t);
    for (const char *from : {"f32", "f64"}) {
        bool wide = from[1] == '6';
        auto name = [&](const char *round) { return std::string("cvt.") + round + t + "." + from; };
        handlers[name("rni.")] = wide ? operate<to_whole<T, to_nearest>, T, double>
                                      : operate<to_whole<T, to_nearest>, T, float>;
        handlers[name("rzi.")] = wide ? operate<to_whole<T, to_zero>, T, double>
                                      : operate<to_whole<T, to_zero>, T, float>;
        handlers[name("rmi.")] = wide ? operate<to_whole<T, to_below>, T, double>
                                      : operate<to_whole<T, to_below>, T, float>;
        handlers[name("rpi.")] = wide ? operate<to_whole<T, to_above>, T, double>
                                      : operate<to_whole<T, to_above>, T, float>;
    }
}

template <typename T> void define_signed(const std::string &t) {
    define_whole<T>(t);
    define<negate, T, T>("neg." + t);
    define<magnitude, T, T>("abs." + t);
}

template <typename T, typename Wide> void define_wide(const std::string &t) {
    define<mul_wide<Wide>, Wide, T, T>("mul.wide." + t);
    define<mad_wide<Wide>, Wide, T, T, Wide>("mad.wide." + t);
}

template <typename T> void define_float(const std::string &t) {
    define_arithmetic<T>(t);
    for (const char *round : {"", "rn."}) {
        define<add, T, T, T>("add." + (round + t));
        define<sub, T, T, T>("sub." + (round + t));
        define<mul, T, T, T>("mul." + (round + t));
    }
    define<divide, T, T, T>("div.rn." + t);
    define<fused, T, T, T, T>("fma.rn." + t);
    define<reciprocal, T, T>("rcp.rn." + t);
    define<root, T, T>("sqrt.rn." + t);
    define<negate, T, T>("neg." + t);
    define<magnitude, T, T>("abs." + t);
    define<to_round<to_nearest>, T, T>("cvt.rni." + t + "." + t);
    define<to_round<to_zero>, T, T>("cvt.rzi." + t + "." + t);
    define<to_round<to_below>, T, T>("cvt.rmi." + t + "." + t);
    define<to_round<to_above>, T, T>("cvt.rpi." + t + "." + t);
    define<either_nan, bool, T, T>("setp.nan." + t);
    define<opposite<either_nan>, bool, T, T>("setp.num." + t);
    define<or_nan<equal>, bool, T, T>("setp.equ." + t);
    define<or_nan<not_equal>, bool, T, T>("setp.neu." + t);
    define<or_nan<less>, bool, T, T>("setp.ltu." + t);
    define<or_nan<less_equal>, bool, T, T>("setp.leu." + t);
    define<or_nan<greater>, bool, T, T>("setp.gtu." + t);
    define<or_nan<greater_equal>, bool, T, T>("setp.geu." + t);
}

/* --- of one type alone --- */

void define_formats() {
    define<half_to_float, float, uint16_t>("cvt.f32.f16");
    define<float_to_half, uint16_t, float>("cvt.rn.f16.f32");
    define<float_to_bfloat, uint16_t, float>("cvt.rn.bf16.f32");
    define<to_pair<to_half>, uint32_t, float, float>("cvt.rn.f16x2.f32");
    define<to_pair<to_bfloat>, uint32_t, float, float>("cvt.rn.bf16x2.f32");
    define<convert<double>, double, float>("cvt.f64.f32");
    define<convert<float>, float, double>("cvt.rn.f32.f64");
    define<saturate, float, float>("cvt.sat.f32.f32");
    define<half_is_nan, uint16_t, uint16_t, uint16_t>("set.nan.f16.f16");
    for (const char *round : {"", "rn."}) {
        define<pairwise<half_sub>, uint32_t, uint32_t, uint32_t>(std::string("sub.") + round +
                                                                 "f16x2");
        define<pairwise<half_add>, uint32_t, uint32_t, uint32_t>(std::string("add.") + round +
                                                                 "f16x2");
    }
    define<pairwise<half_nan<least>>, uint32_t, uint32_t, uint32_t>("min.NaN.f16x2");
    define<pairwise<half_nan<greatest>>, uint32_t, uint32_t, uint32_t>("max.NaN.f16x2");
    define<fused_down, float, float, float, float>("fma.rm.f32");
    define<power_of_2, float, float>("ex2.approx.ftz.f32");
    define<log_of_2, float, float>("lg2.approx.ftz.f32");
    define<reciprocal_rough, double, double>("rcp.approx.ftz.f64");
}

void define_odd() {
    define<find_highest, uint32_t, uint32_t>("bfind.shiftamt.u32");
    define<permute, uint32_t, uint32_t, uint32_t, uint32_t>("prmt.b32");
    define<table, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>("lop3.b32");
    define<funnel<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>("shf.l.wrap.b32");
    define<funnel<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>("shf.l.clamp.b32");
    define<funnel<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>("shf.r.wrap.b32");
    define<funnel<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>("shf.r.clamp.b32");
    define<dot<int8_t, int8_t>, int32_t, uint32_t, uint32_t, int32_t>("dp4a.s32.s32");
    define<dot<uint8_t, uint8_t>, int32_t, uint32_t, uint32_t, int32_t>("dp4a.u32.u32");
    define<dot<int8_t, uint8_t>, int32_t, uint32_t, uint32_t, int32_t>("dp4a.s32.u32");
    define<dot<uint8_t, int8_t>, int32_t, uint32_t, uint32_t, int32_t>("dp4a.u32.s32");
}

/* mov.b64 {a, b}, c; and the way back. */
template <typename T, int kParts> void unpack(warp &w, const instruction &i, uint32_t lanes) {
    const cell *in = w.in(i.x[kParts]);
    each(lanes, [&](int lane) {
        cell all = in[lane];
        for (int k = 0; k < kParts; k++)
            put<T>(w.out(i.x[k]) + lane, (T)(all >> (8 * (int)sizeof(T) * k)));
    });
}
template <typename T, int kParts> void pack(warp &w, const instruction &i, uint32_t lanes) {
    each(lanes, [&](int lane) {
        cell all = 0;
        for (int k = 0; k < kParts; k++)
            all |= (cell)get<T>(w.in(i.x[1 + k]) + lane) << (8 * (int)sizeof(T) * k);
        w.out(i.x[0])[lane] = all;
    });
}

/* Shared and local memory have windows among generic addresses; all others are global. */
template <uint64_t kWindow, bool kTo>
void convert_address(warp &w, const instruction &i, uint32_t lanes) {
    const cell *in = w.in(i.x[1]);
    each(lanes, [&](int lane) {
        if (kTo && (in[lane] & kWindow) == 0)
            report(w, i, lane, "the address is not of the memory that it is taken for");
        w.out(i.x[0])[lane] = kTo ? in[lane] & ~kWindow : in[lane] | kWindow;
    });
}

void define_moves() {
    handlers["unpack2.b32"] = unpack<uint16_t, 2>;
    handlers["unpack2.b64"] = unpack<uint32_t, 2>;
    handlers["unpack4.b64"] = unpack<uint16_t, 4>;
    handlers["pack2.b32"] = pack<uint16_t, 2>;
    handlers["pack2.b64"] = pack<uint32_t, 2>;
    handlers["pack4.b64"] = pack<uint16_t, 4>;
    define<same, uint64_t, uint64_t>("cvta.to.global.u64");
    define<same, uint64_t, uint64_t>("cvta.global.u64");
    handlers["cvta.shared.u64"] = convert_address<SHARED_WINDOW, false>;
    handlers["cvta.to.shared.u64"] = convert_address<SHARED_WINDOW, true>;
    handlers["cvta.local.u64"] = convert_address<LOCAL_WINDOW, false>;
    handlers["cvta.to.local.u64"] = convert_address<LOCAL_WINDOW, true>;
}

void define_all() {
    define_whole<uint16_t>("u16");
    define_whole<uint32_t>("u32");
    define_whole<uint64_t>("u64");
    define_signed<int16_t>("s16");
    define_signed<int32_t>("s32");
    define_signed<int64_t>("s64");
    define_bits<bool>("pred");
    define_bits<uint16_t>("b16");
    define_bits<uint32_t>("b32");
    define_bits<uint64_t>("b64");
    define_words<uint32_t>("b32");
    define_words<uint64_t>("b64");
    define_wide<uint16_t, uint32_t>("u16");
    define_wide<int16_t, int32_t>("s16");
    define_wide<uint32_t, uint64_t>("u32");
    define_wide<int32_t, int64_t>("s32");
    define_float<float>("f32");
    define_float<double>("f64");
    define_formats();
    define_odd();
    define_moves();
}

} // namespace

handler find_plain(const std::string &op) {
    if (handlers.empty()) define_all();
    auto found = handlers.find(op);
    return found == handlers.end() ? NULL : found->second;
}

} // namespace ptx
