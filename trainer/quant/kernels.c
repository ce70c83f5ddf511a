/* Quantise and dequantise in one pass, bit-equal to the torch code beside this file, which holds the formulas and their
 * sources.
 *
 * Everything is IEEE float32 in the order written: compile without fast-math and with -ffp-contract=off. Input and
 * output are contiguous and do not overlap. The loops are plain so that a compiler can vectorise them. An `amax` that is
 * not null stands for the largest magnitude of every group.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INFINITY_BITS 0x7f800000u
#define MAGNITUDE_BITS 0x7fffffffu
#define SIGNIFICAND_BITS 23
#define FRACTION_BITS 0x7fffffu
#define E4M3_MAX 448.0f
#define E5M2_MAX 57344.0f
#define E2M1_MAX 6.0f
#define MX_BLOCK 32
#define NV_BLOCK 16
#define NV_TOGETHER 16 /* blocks whose scales and sums are computed side by side */
#define FOUR_OVER_SIX_UNIT (256.0f * E2M1_MAX)
/* A call keeps what `restrict` says, which inlining loses, and with it the vectors. */
#define NOINLINE __attribute__((noinline))

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x, but not beyond the bound; NaN stays NaN. */
static inline float at_most(float bound, float x) { return x > bound ? bound : x; }
static inline float at_least(float bound, float x) { return x < bound ? bound : x; }

/* Round a >= 0 to `mantissa` bits, ties to even, with subnormals below 2^(smallest_exponent). Adding and taking away
 * 1.5 * 2^23 quanta makes the float32 adder do the rounding; NaN stays NaN. */
static inline float round_magnitude(float a, uint32_t mantissa, int smallest_exponent) {
    uint32_t exponent = bits_of(a) & INFINITY_BITS;
    uint32_t smallest = (uint32_t)(127 + smallest_exponent) << SIGNIFICAND_BITS;
    exponent = exponent > smallest ? exponent : smallest;
    float shift = from_bits(exponent + (((SIGNIFICAND_BITS - mantissa) << SIGNIFICAND_BITS) + 0x400000u));
    return (a + shift) - shift;
}

/* A scale, which is positive or NaN, on the E4M3 grid. */
static inline float e4m3_scale(float x) { return round_magnitude(at_most(E4M3_MAX, x), 3u, -6); }

/* A magnitude, at most the bound. As integers, magnitudes are ordered, with NaN above all: it becomes the bound, for
 * nothing, since the scale that multiplies it is then NaN. */
static inline float saturated(float bound, float a) {
    uint32_t bits = bits_of(a), most = bits_of(bound);
    return from_bits(bits < most ? bits : most);
}

static inline float e2m1_magnitude(float a) { return round_magnitude(saturated(E2M1_MAX, a), 1u, 0); }
static inline float e2m1(float x) { return copysignf(e2m1_magnitude(fabsf(x)), x); }
static inline float e4m3(float x) { return copysignf(round_magnitude(saturated(E4M3_MAX, fabsf(x)), 3u, -6), x); }

static inline float e5m2(float x) { return copysignf(round_magnitude(saturated(E5M2_MAX, fabsf(x)), 2u, -14), x); }

/* max |x|, NaN where anything is NaN or infinite: as integers, magnitudes are ordered and those are the largest. */
static inline uint32_t absmax_bits(const float *x, long count) {
    uint32_t largest = 0;
    for (long i = 0; i < count; i++) {
        uint32_t magnitude = bits_of(x[i]) & MAGNITUDE_BITS;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static inline float finite_or_nan(uint32_t bits) { return bits >= INFINITY_BITS ? NAN : from_bits(bits); }

void trimtab_absmax(const float *restrict x, float *restrict out, long count) {
    *out = finite_or_nan(absmax_bits(x, count));
}

void trimtab_bf16(const float *restrict x, float *restrict out, long count) {
    for (long i = 0; i < count; i++) {
        uint32_t bits = bits_of(x[i]);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
        out[i] = from_bits((bits & MAGNITUDE_BITS) > INFINITY_BITS ? bits : rounded);
    }
}

static inline float fp8_scale(uint32_t amax_bits) { return at_least(FLT_MIN, finite_or_nan(amax_bits) / E4M3_MAX); }

static inline void fp8_values(const float *restrict x, float *restrict out, long count, float scale) {
    for (long i = 0; i < count; i++) out[i] = e4m3(x[i] / scale) * scale;
}

static inline long smaller(long a, long b) { return a < b ? a : b; }

void trimtab_fp8_groups(
    const float *restrict x, float *restrict out, long rows, long columns, long size, const float *amax) {
    for (long r = 0; r < rows; r++, x += columns, out += columns) {
        for (long c = 0; c < columns; c += size) {
            long count = smaller(size, columns - c);
            fp8_values(x + c, out + c, count, fp8_scale(amax ? bits_of(*amax) : absmax_bits(x + c, count)));
        }
    }
}

void trimtab_e5m2_groups(
    const float *restrict x, float *restrict out, long rows, long columns, long size, const float *amax) {
    for (long r = 0; r < rows; r++, x += columns, out += columns) {
        for (long c = 0; c < columns; c += size) {
            long count = smaller(size, columns - c);
            uint32_t largest = amax ? bits_of(*amax) : absmax_bits(x + c, count);
            float scale = at_least(FLT_MIN, finite_or_nan(largest) / E5M2_MAX);
            for (long i = 0; i < count; i++) out[c + i] = e5m2(x[c + i] / scale) * scale;
        }
    }
}

void trimtab_fp8_tiles(const float *restrict x, float *restrict out, long rows, long columns, long tile) {
    for (long r = 0; r < rows; r += tile) {
        long bottom = smaller(r + tile, rows);
        for (long c = 0; c < columns; c += tile) {
            long width = smaller(tile, columns - c);
            uint32_t largest = 0;
            for (long i = r; i < bottom; i++) {
                uint32_t row = absmax_bits(x + i * columns + c, width);
                largest = row > largest ? row : largest;
            }
            float scale = fp8_scale(largest);
            for (long i = r; i < bottom; i++) fp8_values(x + i * columns + c, out + i * columns + c, width, scale);
        }
    }
}

/* The exponent of the scale is that of amax less that of 448; rounded up, it is one more for a significand above 1.75,
 * which is 448's. */
static inline void mx_blocks(const float *restrict x, float *restrict out, long blocks, int ceiling) {
    for (long b = 0; b < blocks; b++, x += MX_BLOCK, out += MX_BLOCK) {
        uint32_t largest = absmax_bits(x, MX_BLOCK);
        uint32_t exponent = largest >> SIGNIFICAND_BITS;
        if (ceiling) exponent += (largest & FRACTION_BITS) > (bits_of(E4M3_MAX) & FRACTION_BITS);
        uint32_t code = exponent > 8u ? exponent - 8u : 0u;
        float scale = code ? from_bits(code << SIGNIFICAND_BITS) : 0x1p-127f;
        float inverse = from_bits((254u - code) << SIGNIFICAND_BITS);
        if (largest >= INFINITY_BITS) scale = NAN;
        for (long i = 0; i < MX_BLOCK; i++) out[i] = e4m3(x[i] * inverse) * scale;
    }
}

void trimtab_mxfp8(const float *restrict x, float *restrict out, long blocks) { mx_blocks(x, out, blocks, 0); }
void trimtab_mxfp8_rceil(const float *restrict x, float *restrict out, long blocks) { mx_blocks(x, out, blocks, 1); }

/* What is computed once for all the values that share a global scale. */
typedef struct {
    float amax, enc, dec;
} Group;

/* A run of blocks, side by side; a run may cross groups. Lanes past its end are computed and not used. */
typedef struct {
    long count;
    float block_amax[NV_TOGETHER];
    float amax[NV_TOGETHER], enc[NV_TOGETHER], dec[NV_TOGETHER]; /* of the group that each block is in */
} BlockRun;

typedef struct {
    float scale[NV_TOGETHER], multiplier[NV_TOGETHER];
} BlockScales;

/* `base` holds the unrounded scales. */
static inline void nv_block_scales(const BlockRun *run, BlockScales *scales, const float *base, float stretch) {
    for (long b = 0; b < NV_TOGETHER; b++) {
        float scale = e4m3_scale(base[b] * stretch);
        scales->scale[b] = scale;
        scales->multiplier[b] = at_most(FLT_MAX, 1.0f / (scale * run->dec[b]));
    }
}

static inline void nv_values(
    const float *restrict x, float *restrict out, const BlockRun *run, const BlockScales *scales) {
    for (long b = 0; b < run->count; b++, x += NV_BLOCK, out += NV_BLOCK)
        for (long i = 0; i < NV_BLOCK; i++)
            out[i] = e2m1(x[i] * scales->multiplier[b]) * scales->scale[b] * run->dec[b];
}

NOINLINE static void nv_plain(const float *restrict x, float *restrict out, const BlockRun *run) {
    BlockScales scales;
    float base[NV_TOGETHER];
    for (long b = 0; b < NV_TOGETHER; b++) base[b] = run->block_amax[b] * (run->enc[b] * (1.0f / E2M1_MAX));
    nv_block_scales(run, &scales, base, 1.0f);
    nv_values(x, out, run, &scales);
}

/* Magnitudes of a run, turned so that neighbours are blocks. */
static inline void nv_turned(const float *restrict x, float (*restrict turned)[NV_TOGETHER]) {
    for (long b = 0; b < NV_TOGETHER; b++)
        for (long i = 0; i < NV_BLOCK; i++) turned[i][b] = fabsf(x[b * NV_BLOCK + i]);
}

/* p / (6 * 256), correctly rounded. Far from overflow and underflow (`tame`) a product with the rounded reciprocal and
 * two fused steps give the same bits as the division (Markstein 1990), faster. */
static inline float nv_restored(float p, int tame) {
#ifdef FP_FAST_FMAF
    if (tame) {
        const float inverse = 1.0f / FOUR_OVER_SIX_UNIT;
        float q = p * inverse;
        return fmaf(fmaf(-q, FOUR_OVER_SIX_UNIT, p), inverse, q);
    }
#endif
    return p / FOUR_OVER_SIX_UNIT;
}

/* The error of each block of a run with `scales`, its terms added from left to right. */
static inline void nv_errors(
    float (*restrict turned)[NV_TOGETHER], const BlockRun *run, const BlockScales *scales, int tame, int absolute,
    float *restrict error) {
    for (long b = 0; b < NV_TOGETHER; b++) {
        float sum = 0.0f;
        for (long i = 0; i < NV_BLOCK; i++) {
            float value = e2m1_magnitude(turned[i][b] * scales->multiplier[b]) * scales->scale[b];
            float difference = nv_restored(value * run->amax[b], tame) - turned[i][b];
            sum += absolute ? fabsf(difference) : difference * difference;
        }
        error[b] = sum;
    }
}

NOINLINE static void nv_four_over_six(const float *restrict x, float *restrict out, const BlockRun *run, int absolute) {
    float turned[NV_BLOCK][NV_TOGETHER], padded[NV_BLOCK * NV_TOGETHER];
    float base[NV_TOGETHER], error6[NV_TOGETHER], error4[NV_TOGETHER];
    BlockScales scales[2];
    int tame = 1;
    if (run->count < NV_TOGETHER) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, (size_t)run->count * NV_BLOCK * sizeof *x);
    }
    nv_turned(run->count < NV_TOGETHER ? padded : x, turned);
    for (long b = 0; b < NV_TOGETHER; b++) base[b] = run->block_amax[b] / E2M1_MAX * run->enc[b];
    nv_block_scales(run, &scales[0], base, 1.0f);
    nv_block_scales(run, &scales[1], base, 1.5f);
    for (long b = 0; b < NV_TOGETHER; b++) tame &= run->amax[b] > 0x1p-60f && run->amax[b] < 0x1p110f;
    if (tame) { /* constants, so that each loop is compiled without the other case */
        nv_errors(turned, run, &scales[0], 1, absolute, error6);
        nv_errors(turned, run, &scales[1], 1, absolute, error4);
    } else {
        nv_errors(turned, run, &scales[0], 0, absolute, error6);
        nv_errors(turned, run, &scales[1], 0, absolute, error4);
    }
    for (long b = 0; b < NV_TOGETHER; b++) {
        int four = error4[b] < error6[b];
        scales[0].scale[b] = four ? scales[1].scale[b] : scales[0].scale[b];
        scales[0].multiplier[b] = four ? scales[1].multiplier[b] : scales[0].multiplier[b];
    }
    nv_values(x, out, run, &scales[0]);
}

/* `unit` is the largest block scale times the largest code. */
static inline Group nv_group(const float *x, long size, float unit, const float *amax) {
    Group group = {.amax = amax ? *amax : finite_or_nan(absmax_bits(x, size))};
    group.enc = at_most(FLT_MAX, unit / group.amax);
    group.dec = 1.0f / group.enc;
    return group;
}

static inline void nv_join(BlockRun *run, long b, const Group *group) {
    run->amax[b] = group->amax, run->enc[b] = group->enc, run->dec[b] = group->dec;
}

static inline void nv_runs(
    const float *restrict x, float *restrict out, long groups, long size, float unit, const float *amax,
    int four_over_six, int absolute) {
    BlockRun run = {0};
    Group group = {0};
    long blocks_in_group = size / NV_BLOCK, left = groups * blocks_in_group, left_in_group = 0;
    while (left > 0) {
        run.count = left < NV_TOGETHER ? left : NV_TOGETHER;
        for (long b = 0; b < run.count; b++) {
            if (left_in_group == 0) {
                group = nv_group(x + b * NV_BLOCK, size, unit, amax);
                left_in_group = blocks_in_group;
            }
            left_in_group--;
            nv_join(&run, b, &group);
            run.block_amax[b] = finite_or_nan(absmax_bits(x + b * NV_BLOCK, NV_BLOCK));
        }
        if (four_over_six) nv_four_over_six(x, out, &run, absolute);
        else nv_plain(x, out, &run);
        x += run.count * NV_BLOCK, out += run.count * NV_BLOCK, left -= run.count;
    }
}

void trimtab_nvfp4(const float *restrict x, float *restrict out, long groups, long size, const float *amax) {
    nv_runs(x, out, groups, size, E4M3_MAX * E2M1_MAX, amax, 0, 0);
}

void trimtab_nvfp4_46(const float *restrict x, float *restrict out, long groups, long size, const float *amax) {
    nv_runs(x, out, groups, size, FOUR_OVER_SIX_UNIT, amax, 1, 0);
}

void trimtab_nvfp4_46_mae(const float *restrict x, float *restrict out, long groups, long size, const float *amax) {
    nv_runs(x, out, groups, size, FOUR_OVER_SIX_UNIT, amax, 1, 1);
}

/* One group; a block scale is shared by 16 rows. */
void trimtab_nvfp4_tiles(const float *restrict x, float *restrict out, long rows, long columns, const float *amax) {
    BlockRun run = {0};
    Group group = nv_group(x, rows * columns, E4M3_MAX * E2M1_MAX, amax);
    for (long b = 0; b < NV_TOGETHER; b++) nv_join(&run, b, &group);
    for (long band = 0; band < rows; band += NV_BLOCK) {
        for (long c = 0; c < columns; c += run.count * NV_BLOCK) {
            long left = (columns - c) / NV_BLOCK, first = band * columns + c;
            run.count = left < NV_TOGETHER ? left : NV_TOGETHER;
            for (long b = 0; b < run.count; b++) {
                uint32_t largest = 0;
                for (long i = 0; i < NV_BLOCK; i++) {
                    uint32_t row = absmax_bits(x + first + i * columns + b * NV_BLOCK, NV_BLOCK);
                    largest = row > largest ? row : largest;
                }
                run.block_amax[b] = finite_or_nan(largest);
            }
            for (long i = 0; i < NV_BLOCK; i++) nv_plain(x + first + i * columns, out + first + i * columns, &run);
        }
    }
}

#define LANES 32 /* columns that are added up side by side; with fewer, compilers leave the loops scalar */
#define TOGETHER 32
#define PROMOTED_EVERY 128
#define FRACTION 13 /* of the 14 bits */

static inline uint32_t exponent_of(float x) { return bits_of(x) & INFINITY_BITS; }

/* acc <- acc + a b over up to TOGETHER products. Products and acc are cut off, towards zero, below 14 bits of the
 * largest of them by exponent, and so is their sum. Exponents stay where they are in a float; zeros have none and never
 * win, since no product of FP8 codes is below 2^-32 (NO_EXPONENT stands for 2^-63). */
#define NO_EXPONENT (64u << SIGNIFICAND_BITS)
static inline void add_14_bits(
    const float *restrict a, const float *restrict b, float *restrict acc, long count, long stride) {
    uint32_t top[LANES];
    int32_t sum[LANES];
    float down[LANES];
    for (long n = 0; n < LANES; n++) {
        uint32_t exponent = exponent_of(acc[n]);
        top[n] = exponent > NO_EXPONENT ? exponent : NO_EXPONENT;
    }
    for (long k = 0; k < count; k++) {
        if (a[k] == 0.0f) continue;
        uint32_t less = (127u << SIGNIFICAND_BITS) - exponent_of(a[k]);
        for (long n = 0; n < LANES; n++) {
            uint32_t exponent = exponent_of(b[k * stride + n]) - less;
            exponent = b[k * stride + n] == 0.0f ? 0u : exponent;
            top[n] = exponent > top[n] ? exponent : top[n];
        }
    }
    for (long n = 0; n < LANES; n++) {
        down[n] = from_bits(((254u + FRACTION) << SIGNIFICAND_BITS) - top[n]);
        sum[n] = (int32_t)(acc[n] * down[n]);
    }
    for (long k = 0; k < count; k++)
        for (long n = 0; n < LANES; n++) sum[n] += (int32_t)(a[k] * b[k * stride + n] * down[n]);
    for (long n = 0; n < LANES; n++) {
        float cut = from_bits(bits_of((float)sum[n]) & ~((1u << (SIGNIFICAND_BITS - FRACTION)) - 1u));
        acc[n] = cut * from_bits(top[n] - (FRACTION << SIGNIFICAND_BITS));
    }
}

void trimtab_multiply_14_bits(
    const float *restrict a, const float *restrict b, float *restrict out, long rows, long depth, long columns) {
    for (long r = 0; r < rows; r++, a += depth, out += columns) {
        for (long c = 0; c < columns; c += LANES) {
            float total[LANES] = {0}, acc[LANES] = {0};
            for (long k = 0; k < depth; k += TOGETHER) {
                add_14_bits(a + k, b + k * columns + c, acc, smaller(TOGETHER, depth - k), columns);
                if ((k + TOGETHER) % PROMOTED_EVERY && k + TOGETHER < depth) continue;
                for (long n = 0; n < LANES; n++) total[n] += acc[n], acc[n] = 0.0f;
            }
            memcpy(out + c, total, sizeof total);
        }
    }
}
