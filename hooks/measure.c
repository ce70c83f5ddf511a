/* `trimtab.hooks.accumulate.measure` in one pass over a batch, added to the vector of `trimtab.hooks.layout`.

   Tokens are taken in blocks that stay in the first cache. Everything is summed in double; the compiler may reorder
   the sums. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TENSORS = 7, SKETCHES = 3, SIGNS = 3, CELLS = 2048, MOMENTS = 6, TOTALS = 5, KINDS = 5 };
enum { ENTROPY = 5, ADVANTAGES = 6, BLOCK = 512, DEAD = SIGNS, MISMATCH = 1 };
enum { RANGES = 6, CAPS = 4, LEVELS = 12, LANES = 16 };

/* Where each range of positions and of lengths begins, and what responses are counted above; as in
   `trimtab.hooks.responses` and `trimtab.hooks.records`. */
static const long POSITION_STARTS[RANGES + 1] = {0, 1, 4, 16, 64, 256, LONG_MAX};
static const long LENGTH_STARTS[RANGES + 1] = {1, 4, 16, 64, 256, 1024, LONG_MAX};
static const double RATIO_CAPS[CAPS] = {2, 3, 5, 10};
static const double MEAN_LEVELS[LEVELS] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};

/* Of some tokens: their number, and the sums of their clamped log-ratios and of the absolute values of these. */
typedef struct {
  double tokens, total, absolute;
} Bucket;

typedef struct {
  double counts[SKETCHES][SIGNS][CELLS];
  double sums[SKETCHES][SIGNS][MOMENTS];
  double totals[SIGNS][TOTALS];
  double nonfinite[TENSORS][KINDS];
  double observed[SKETCHES];
  Bucket positions[RANGES], lengths[RANGES];
  double batches, sequences, missing, of_observed, ratio, ratio_sq, ratio_above[CAPS], mean_above[LEVELS],
      latent;
} Vector;

/* Tokens by cell. What does not count goes to the spare rows at the end, one cell after another: many increments of
   one cell wait for each other. */
typedef uint32_t Table[SIGNS + 1][CELLS];

static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline int finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }

/* Largest value of a tensor that can be used: log-probs above 1e-4 are none. */
static inline float limit_of(int tensor) { return tensor < ENTROPY ? 1e-4f : FLT_MAX; }

/* Log-ratio above which a float32 exponential is infinite; as in `trimtab.hooks.responses`. */
static const float OVERFLOW = 0x1.62e43p6f;

static inline int usable(float x, float limit) { return (x >= -FLT_MAX) & (x <= limit); }

/* e^x - 1 - x for |x| <= 20: a Taylor series on what is left of x after a power of two. There is no cancellation where
   |x| < 0.34, so the result is right to a few units in the last place there, and to 1e-6 of itself elsewhere. */
static inline float excess(float x) {
  const float magic = 0x1.8p23f;
  float shifted = x * 0x1.715476p0f + magic;
  float n = shifted - magic;
  float r = (x - n * 0x1.62e400p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 1.0f / 40320;
  p = p * r + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r;
  uint32_t power = (bits_of(shifted) + 127u) << 23;
  float scale;
  memcpy(&scale, &power, sizeof scale);
  return n == 0 ? p : scale * p + (scale * r + (scale - 1 - x));
}

/* Whether token i counts at all, from a mask of 1, 4 or 8 bytes a token, whole or floating: anything but zero. */
static void read_mask(const void *mask, long bytes, long start, long n, uint8_t *live) {
  if (bytes == 1)
    for (long i = 0; i < n; i++) live[i] = ((const uint8_t *)mask)[start + i] != 0;
  else if (bytes == 4)
    for (long i = 0; i < n; i++) live[i] = (((const uint32_t *)mask)[start + i] & 0x7fffffffu) != 0;
  else
    for (long i = 0; i < n; i++) live[i] = (((const uint64_t *)mask)[start + i] << 1) != 0;
}

static int all_usable(const float *x, float limit, long n) {
  int bad = 0;
  for (long i = 0; i < n; i++) bad |= !usable(x[i], limit);
  return !bad;
}

static void count_unusable(const float *x, float limit, const uint8_t *live, long n, double *kinds) {
  for (long i = 0; i < n; i++) {
    if (usable(x[i], limit)) continue;
    if (!live[i])
      kinds[3] += !finite(x[i]);
    else if (finite(x[i]))
      kinds[4]++;
    else if (isnan(x[i]))
      kinds[0]++;
    else
      kinds[x[i] > 0 ? 1 : 2]++;
  }
}

static void count_cells(const float *x, const uint8_t *sign, long n, Table table) {
  uint16_t cell[BLOCK];
  for (long i = 0; i < n; i++) {
    uint32_t bits = bits_of(x[i]);
    /* float16 keeps ten fraction bits and rounds; a cell keeps five of them. */
    int32_t size = (int32_t)(((bits & 0x7fffffffu) + 0x1000u) >> 18) - 112 * 32;
    size = size < 0 ? 0 : size > 20 * 32 ? 20 * 32 : size;
    int32_t place = size + (bits >> 31 ? 0 : CELLS / 2);
    cell[i] = (uint16_t)(sign[i] * CELLS + (sign[i] == DEAD ? i : place));
  }
  uint32_t *flat = &table[0][0];
#pragma GCC unroll 8 /* else its speed hangs on where it happens to be placed */
  for (long i = 0; i < n; i++) flat[cell[i]]++;
}

typedef struct {
  const uint8_t *sign; /* of each token of the block, or DEAD */
  long tokens[SIGNS];  /* of each sign */
} Signs;

static Signs signs_of(const uint8_t *sign, long n) {
  Signs signs = {sign, {0}};
  for (int s = 0; s < SIGNS; s++) {
    uint16_t tokens = 0; /* BLOCK fits, and narrow lanes are many */
    for (long i = 0; i < n; i++) tokens += sign[i] == s;
    signs.tokens[s] = tokens;
  }
  return signs;
}

/* The signs of tokens whose values are usable. */
static Signs usable_signs(const float *a, const float *b, float limit, Signs signs, long n, uint8_t *memory) {
  for (long i = 0; i < n; i++) memory[i] = usable(a[i], limit) & usable(b[i], limit) ? signs.sign[i] : DEAD;
  return signs_of(memory, n);
}

/* values of sign s, and 0 for the others, so that the loops that sum need not look at signs. */
static inline void select_sign(const float *values, const uint8_t *sign, long n, int s, float *selected) {
  for (long i = 0; i < n; i++) selected[i] = sign[i] == s ? values[i] : 0;
}

/* Clamps x as well. */
static void add_moments(float *x, Signs signs, long n, double (*sums)[MOMENTS]) {
  float k[BLOCK], selected_x[BLOCK], selected_k[BLOCK];
  for (long i = 0; i < n; i++) { /* dead tokens may give anything here, and are not selected below */
    x[i] = x[i] > 20 ? 20 : x[i] < -20 ? -20 : x[i];
    k[i] = excess(x[i]);
  }
  for (int s = 0; s < SIGNS; s++) {
    if (!signs.tokens[s]) continue;
    select_sign(x, signs.sign, n, s, selected_x);
    select_sign(k, signs.sign, n, s, selected_k);
    double sx = 0, sxx = 0, sk = 0, sxk = 0, skk = 0;
#pragma omp simd reduction(+ : sx, sxx, sk, sxk, skk)
    for (long i = 0; i < n; i++) {
      double a = selected_x[i], b = selected_k[i];
      sx += a;
      sxx += a * a;
      sk += b;
      sxk += a * b;
      skk += b * b;
    }
    sums[s][0] += signs.tokens[s];
    sums[s][1] += sx;
    sums[s][2] += sxx;
    sums[s][3] += sk;
    sums[s][4] += sxk;
    sums[s][5] += skk;
  }
}

static void add_totals(const float *advantage, Signs signs, const float *entropy, Signs seen, long n,
                       double (*totals)[TOTALS]) {
  float selected[BLOCK];
  for (int s = 0; s < SIGNS; s++) {
    if (!signs.tokens[s]) continue;
    double size = 0, h = 0, hh = 0;
    select_sign(advantage, signs.sign, n, s, selected);
#pragma omp simd reduction(+ : size)
    for (long i = 0; i < n; i++) size += fabsf(selected[i]);
    totals[s][0] += signs.tokens[s];
    totals[s][1] += size;
    if (!entropy || !seen.tokens[s]) continue;
    select_sign(entropy, seen.sign, n, s, selected);
#pragma omp simd reduction(+ : h, hh)
    for (long i = 0; i < n; i++) {
      double value = selected[i];
      h += value;
      hh += value * value;
    }
    totals[s][2] += seen.tokens[s];
    totals[s][3] += h;
    totals[s][4] += hh;
  }
}

/* The response whose tokens are being read: a row, which may go through several blocks. */
typedef struct {
  long end;    /* of the row, in tokens of the batch */
  long first;  /* its first live token, once there is one */
  long length; /* live tokens so far */
  int sampled; /* whether any of them has a usable sampler log-prob */
  long latent; /* masked tokens that overflow since the last live one */
  Bucket all;
} Response;

static void add_bucket(Bucket *to, Bucket more) {
  to->tokens += more.tokens;
  to->total += more.total;
  to->absolute += more.absolute;
}

static void close_response(const Response *response, Vector *out) {
  if (!response->length) return;
  int range = 0;
  while (response->length >= LENGTH_STARTS[range + 1]) range++;
  add_bucket(&out->lengths[range], response->all);
  out->sequences++;
  out->missing += !response->sampled;
  double n = response->all.tokens, total = response->all.total;
  if (!n) return;
  double ratio = exp(total > 20 ? 20 : total < -20 ? -20 : total);
  out->of_observed++;
  out->ratio += ratio;
  out->ratio_sq += ratio * ratio;
  for (int i = 0; i < CAPS; i++) out->ratio_above[i] += total > log(RATIO_CAPS[i]);
  for (int i = 0; i < LEVELS; i++) out->mean_above[i] += fabs(total) > MEAN_LEVELS[i] * n;
}

/* Of n tokens, whose log-ratios are 0 where they are not counted. */
static Bucket bucket_of(const float *x, const uint8_t *counted, long n) {
  double total = 0, absolute = 0;
  uint16_t tokens = 0;
  for (long i = 0; i < n; i++) tokens += counted[i];
#pragma omp simd reduction(+ : total, absolute)
  for (long i = 0; i < n; i++) {
    double value = x[i];
    total += value;
    absolute += fabs(value);
  }
  return (Bucket){tokens, total, absolute};
}

/* Count the masked tokens of a part of a response, from token i to `end`, that overflow between live ones. */
static void add_latent(const float *top, const float *bottom, const uint8_t *live, long i, long end, Response *response,
                       Vector *out) {
  int begun = response->length > 0;
  for (; i < end; i++) {
    if (live[i]) {
      out->latent += response->latent;
      response->latent = 0;
      begun = 1;
    } else if (begun && usable(top[i], limit_of(0)) && usable(bottom[i], limit_of(0)))
      response->latent += top[i] - bottom[i] > OVERFLOW;
  }
}

/* Add a block that begins at token `start` to its responses, of `width` tokens each; sign is DEAD where a token has no
   usable log-ratio, and log-ratios are clamped. `overflow` says whether any token of the block may overflow. Not
   inlined, to leave the registers to the loops around it. */
__attribute__((noinline)) static void add_responses(const float *log_ratio, const uint8_t *sign, const uint8_t *live,
                                                    const float *top, const float *sampler, int overflow, long start,
                                                    long n, long width, Response *response, Vector *out) {
  float x[BLOCK];
  uint8_t counted[BLOCK];
  /* Loops of one width each, which the compiler makes vectors of. */
  for (long i = 0; i < n; i++) counted[i] = sign[i] != DEAD;
  for (long i = 0; i < n; i++) x[i] = sign[i] == DEAD ? 0 : log_ratio[i];
  for (long i = 0, end; i < n; i = end) {
    end = response->end - start < n ? response->end - start : n;
    uint16_t tokens = 0;
    for (long j = i; j < end; j++) tokens += live[j];
    if (overflow || response->latent) add_latent(top, sampler, live, i, end, response, out);
    if (tokens) {
      if (!response->length) response->first = start + ((const uint8_t *)memchr(live + i, 1, end - i) - live);
      response->length += tokens;
      for (long j = i; j < end && !response->sampled; j++)
        response->sampled = live[j] && usable(sampler[j], limit_of(0));
      long first = response->first - start; /* in tokens of the block, which it may be before */
      for (long range = 0, j = first < i ? i : first, stop; j < end; range++) {
        stop = POSITION_STARTS[range + 1] < end - first ? first + POSITION_STARTS[range + 1] : end;
        if (stop <= j) continue;
        Bucket sum = bucket_of(x + j, counted + j, stop - j);
        add_bucket(&out->positions[range], sum);
        add_bucket(&response->all, sum);
        j = stop;
      }
    }
    if (start + end == response->end) {
      close_response(response, out);
      *response = (Response){.end = response->end + width};
    }
  }
}

/* tensors: contiguous [tokens], or null; advantages have one value for every `repeat` tokens.
   width: tokens of a row, each row being a response, or -1 where there are no rows.
   pairs: tensor numbers of numerator and denominator of each sketch, or -1. */
void trimtab_measure(long tokens, const float *const *tensors, long repeat, long width, const void *mask,
                     long mask_bytes, const int32_t (*pairs)[2], Table *tables, Vector *out) {
  Response response = {.end = width};
  for (int p = 0; p < SKETCHES; p++)
    if (pairs[p][0] >= 0) memset(tables[p], 0, SIGNS * sizeof *tables[p]);
  for (long start = 0; start < tokens; start += BLOCK) {
    long n = tokens - start < BLOCK ? tokens - start : BLOCK;
    float advantage[BLOCK], x[BLOCK];
    uint8_t live[BLOCK], sign[BLOCK], memory[BLOCK];
    int clean[TENSORS];
    read_mask(mask, mask_bytes, start, n, live);
    for (long i = 0, end; i < n; i = end) {
      long sequence = (start + i) / repeat;
      end = (sequence + 1) * repeat - start;
      end = repeat == 1 || end > n ? n : end;
      if (repeat == 1) memcpy(advantage, tensors[ADVANTAGES] + start, n * sizeof *advantage);
      else for (long j = i; j < end; j++) advantage[j] = tensors[ADVANTAGES][sequence];
    }
    for (int t = 0; t < TENSORS; t++) {
      const float *values = t == ADVANTAGES ? advantage : tensors[t] ? tensors[t] + start : 0;
      clean[t] = !values || all_usable(values, limit_of(t), n);
      if (!clean[t]) count_unusable(values, limit_of(t), live, n, out->nonfinite[t]);
    }
    for (long i = 0; i < n; i++) {
      float a = advantage[i];
      sign[i] = live[i] && finite(a) ? (uint8_t)(1 + (a > 0) - (a < 0)) : DEAD;
    }
    Signs signs = signs_of(sign, n);
    for (int p = 0; p < SKETCHES; p++) {
      if (pairs[p][0] < 0) continue;
      const float *top = tensors[pairs[p][0]] + start, *bottom = tensors[pairs[p][1]] + start;
      int all = clean[pairs[p][0]] && clean[pairs[p][1]];
      Signs usable = all ? signs : usable_signs(top, bottom, limit_of(pairs[p][0]), signs, n, memory);
      int overflow = 0;
      for (long i = 0; i < n; i++) {
        x[i] = top[i] - bottom[i];
        overflow |= (x[i] > OVERFLOW) & (x[i] <= FLT_MAX);
      }
      count_cells(x, usable.sign, n, tables[p]);
      add_moments(x, usable, n, out->sums[p]);
      if (p == MISMATCH && width > 0) 
        add_responses(x, usable.sign, live, top, bottom, overflow, start, n, width, &response, out);
    }
    const float *entropy = tensors[ENTROPY] ? tensors[ENTROPY] + start : 0;
    Signs seen = clean[ENTROPY] ? signs : usable_signs(entropy, entropy, limit_of(ENTROPY), signs, n, memory);
    add_totals(advantage, signs, entropy, seen, n, out->totals);
  }
  for (int p = 0; p < SKETCHES; p++) {
    if (pairs[p][0] < 0) continue;
    out->observed[p]++;
    out->batches += p == MISMATCH && width >= 0;
    for (int s = 0; s < SIGNS; s++)
      for (int c = 0; c < CELLS; c++) out->counts[p][s][c] += tables[p][s][c];
  }
}
