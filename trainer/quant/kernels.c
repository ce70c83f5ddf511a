/* Quantise and dequantise in one pass, bit-equal to the torch code beside this file, which holds the formulas and their
 * sources.
 *
 * Everything is IEEE float32 in the order written: compile without fast-math and with -ffp-contract=off. Input and
 * output are contiguous and do not overlap. The loops are plain so that a compiler can vectorise them.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INFINITY_BITS 0x7f800000u
#define SIGNIFICAND_BITS 23
#define E4M3_MAX 448.0f
#define E2M1_MAX 6.0f
#define MX_BLOCK 32
#define NV_BLOCK 16
#define NV_TOGETHER 16 /* blocks whose scales and sums are computed side by side */
#define FOUR_OVER_SIX_UNIT (256.0f * E2M1_MAX)

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
    float shift = from_bits((exponent + ((SIGNIFICAND_BITS - mantissa) << SIGNIFICAND_BITS)) | 0x400000u);
    return (a + shift) - shift;
}

static inline float e4m3(float x) {
    return copysignf(round_magnitude(at_most(E4M3_MAX, fabsf(x)), 3u, -6), x);
}

static inline float e2m1(float x) {
    return copysignf(round_magnitude(at_most(E2M1_MAX, fabsf(x)), 1u, 0), x);
}

/* max |x|, NaN where anything is NaN or infinite: as integers, magnitudes are ordered and those are the largest. */
static inline uint32_t absmax_bits(const float *x, long count) {
    uint32_t largest = 0;
    for (long i = 0; i < count; i++) {
        uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static inline float finite_or_nan(uint32_t magnitude) {
    return magnitude >= INFINITY_BITS ? NAN : from_bits(magnitude);
}

void trimtab_bf16(const float *x, float *out, long count) {
    for (long i = 0; i < count; i++) {
        uint32_t bits = bits_of(x[i]);
        uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
        out[i] = from_bits((bits & 0x7fffffffu) > INFINITY_BITS ? bits : rounded);
    }
}

static inline float fp8_scale(uint32_t amax_bits) {
    return at_least(FLT_MIN, finite_or_nan(amax_bits) / E4M3_MAX);
}

static inline void fp8_values(const float *x, float *out, long count, float scale) {
    for (long i = 0; i < count; i++) out[i] = e4m3(x[i] / scale) * scale;
}

void trimtab_fp8_groups(const float *x, float *out, long groups, long size) {
    for (long g = 0; g < groups; g++, x += size, out += size)
        fp8_values(x, out, size, fp8_scale(absmax_bits(x, size)));
}

void trimtab_fp8_tiles(const float *x, float *out, long rows, long columns, long tile) {
    for (long r = 0; r < rows; r += tile) {
        for (long c = 0; c < columns; c += tile) {
            uint32_t largest = 0;
            for (long i = r; i < r + tile; i++) {
                uint32_t row = absmax_bits(x + i * columns + c, tile);
                largest = row > largest ? row : largest;
            }
            float scale = fp8_scale(largest);
            for (long i = r; i < r + tile; i++) fp8_values(x + i * columns + c, out + i * columns + c, tile, scale);
        }
    }
}

void trimtab_mxfp8(const float *x, float *out, long blocks) {
    for (long b = 0; b < blocks; b++, x += MX_BLOCK, out += MX_BLOCK) {
        uint32_t largest = absmax_bits(x, MX_BLOCK);
        uint32_t exponent = largest >> SIGNIFICAND_BITS;
        uint32_t code = exponent > 8u ? exponent - 8u : 0u;
        float scale = code ? from_bits(code << SIGNIFICAND_BITS) : 0x1p-127f;
        float inverse = from_bits((254u - code) << SIGNIFICAND_BITS);
        if (largest >= INFINITY_BITS) scale = NAN;
        for (long i = 0; i < MX_BLOCK; i++) out[i] = e4m3(x[i] * inverse) * scale;
    }
}

/* A run of blocks, side by side; a run may cross groups. Lanes past its end are computed and not used. */
typedef struct {
    long count;
    float block_amax[NV_TOGETHER];
    float amax[NV_TOGETHER], enc[NV_TOGETHER], dec[NV_TOGETHER]; /* of the group that each block is in */
} BlockRun;

typedef struct {
    float scale[NV_TOGETHER], multiplier[NV_TOGETHER];
} BlockScales;

static inline void nv_globals(BlockRun *run, float unit) {
    for (long b = 0; b < NV_TOGETHER; b++) {
        run->enc[b] = at_most(FLT_MAX, unit / run->amax[b]);
        run->dec[b] = 1.0f / run->enc[b];
    }
}

/* `base` holds the unrounded scales. */
static inline void nv_block_scales(const BlockRun *run, BlockScales *scales, const float *base, float stretch) {
    for (long b = 0; b < NV_TOGETHER; b++) {
        float scale = e4m3(base[b] * stretch);
        scales->scale[b] = scale;
        scales->multiplier[b] = at_most(FLT_MAX, 1.0f / (scale * run->dec[b]));
    }
}

static void nv_plain(const float *x, float *out, BlockRun *run) {
    BlockScales scales;
    float base[NV_TOGETHER];
    nv_globals(run, E4M3_MAX * E2M1_MAX);
    for (long b = 0; b < NV_TOGETHER; b++) base[b] = run->block_amax[b] * (run->enc[b] * (1.0f / E2M1_MAX));
    nv_block_scales(run, &scales, base, 1.0f);
    for (long b = 0; b < run->count; b++)
        for (long i = b * NV_BLOCK; i < (b + 1) * NV_BLOCK; i++)
            out[i] = e2m1(x[i] * scales.multiplier[b]) * scales.scale[b] * run->dec[b];
}

/* The values of one candidate of four-over-six, code * scale, and the squares of its errors. */
static inline void nv_candidate(
    const float *x, float *values, float *squares, float scale, float multiplier, float amax) {
    for (long i = 0; i < NV_BLOCK; i++) {
        values[i] = e2m1(x[i] * multiplier) * scale;
        float difference = values[i] * amax / FOUR_OVER_SIX_UNIT - x[i];
        squares[i] = difference * difference;
    }
}

static void nv_four_over_six(const float *x, float *out, BlockRun *run) {
    float values[2][NV_TOGETHER][NV_BLOCK], squares[2][NV_TOGETHER][NV_BLOCK], turned[NV_BLOCK][NV_TOGETHER];
    float base[NV_TOGETHER], errors[2][NV_TOGETHER] = {{0}};
    BlockScales scales[2];
    nv_globals(run, FOUR_OVER_SIX_UNIT);
    for (long b = 0; b < NV_TOGETHER; b++) base[b] = run->block_amax[b] / E2M1_MAX * run->enc[b];
    nv_block_scales(run, &scales[0], base, 1.0f);
    nv_block_scales(run, &scales[1], base, 1.5f);
    if (run->count < NV_TOGETHER) memset(squares, 0, sizeof squares);
    for (long b = 0; b < run->count; b++)
        for (long k = 0; k < 2; k++)
            nv_candidate(
                x + b * NV_BLOCK, values[k][b], squares[k][b], scales[k].scale[b], scales[k].multiplier[b],
                run->amax[b]);
    for (long k = 0; k < 2; k++) { /* left to right for all blocks at once: turned, so that neighbours are blocks */
        for (long b = 0; b < NV_TOGETHER; b++)
            for (long i = 0; i < NV_BLOCK; i++) turned[i][b] = squares[k][b][i];
        for (long i = 0; i < NV_BLOCK; i++)
            for (long b = 0; b < NV_TOGETHER; b++) errors[k][b] += turned[i][b];
    }
    for (long b = 0; b < run->count; b++) {
        const float *chosen = values[errors[1][b] < errors[0][b]][b];
        for (long i = 0; i < NV_BLOCK; i++) out[b * NV_BLOCK + i] = chosen[i] * run->dec[b];
    }
}

static inline void nv_runs(
    const float *x, float *out, long groups, long size, void (*quantise)(const float *, float *, BlockRun *)) {
    BlockRun run = {0};
    float amax = 0.0f;
    long blocks_in_group = size / NV_BLOCK, left = groups * blocks_in_group, left_in_group = 0;
    while (left > 0) {
        run.count = left < NV_TOGETHER ? left : NV_TOGETHER;
        for (long b = 0; b < run.count; b++) {
            const float *block = x + b * NV_BLOCK;
            if (left_in_group == 0) {
                amax = finite_or_nan(absmax_bits(block, size));
                left_in_group = blocks_in_group;
            }
            left_in_group--;
            run.amax[b] = amax;
            run.block_amax[b] = finite_or_nan(absmax_bits(block, NV_BLOCK));
        }
        quantise(x, out, &run);
        x += run.count * NV_BLOCK, out += run.count * NV_BLOCK, left -= run.count;
    }
}

void trimtab_nvfp4(const float *x, float *out, long groups, long size) { nv_runs(x, out, groups, size, nv_plain); }

void trimtab_nvfp4_46(const float *x, float *out, long groups, long size) {
    nv_runs(x, out, groups, size, nv_four_over_six);
}
