// oneDNN's matrix product on the sizes in GEMM ("MxKxN" or "BATCHxMxKxN", with "-tn", "-nt", "-tt" where operands lie
// transposed, or "-grad", as "-tn", for the gradient of a weight), one line `row<TAB>unit<TAB>value` each.
// Threads are set by OMP_NUM_THREADS. With the argument "version" the library's version is printed.
#define _POSIX_C_SOURCE 200809L
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TIMES = 100000 };
static double times[MOST_TIMES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static float *numbers(long count) {
    float *x = aligned_alloc(64, (size_t)((count * 4 + 63) / 64 * 64));
    for (long i = 0; i < count; i++) x[i] = (float)(i % 7) - 3.0f;
    return x;
}

static void measure(const char *name, long batch, long m, long k, long n) {
    const char *lies = strchr(name, '-');
    int left = lies && (lies[1] == 't' || lies[1] == 'g'), right = lies && lies[1] != 'g' && lies[2] == 't';
    float *a = numbers(batch * m * k), *b = numbers(batch * k * n), *c = numbers(batch * m * n);
    int count = 0;
    double end = 0;
    for (int warm = 3; warm > -MOST_TIMES && (warm >= 0 || count < 5 || now() < end); warm--) {
        double start = now();
        for (long i = 0; i < batch; i++)
            dnnl_sgemm(left ? 'T' : 'N', right ? 'T' : 'N', m, n, k, 1.0f, a + i * m * k, left ? m : k, b + i * k * n,
                       right ? k : n, 0.0f, c + i * m * n, n);
        if (warm == 0) end = now() + 0.6;
        if (warm < 0) times[count++] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, compare);
    printf("gemm %s\tGFLOP/s\t%.6g\n", name, 2e-9 * (double)(batch * m * k * n) / times[count / 2]);
    free(a);
    free(b);
    free(c);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "version") == 0) {
        const dnnl_version_t *v = dnnl_version();
        printf("%d.%d.%d\n", v->major, v->minor, v->patch);
        return 0;
    }
    const char *sizes = getenv("GEMM");
    char *text = strdup(sizes ? sizes : "");
    for (char *name = strtok(text, " "); name; name = strtok(NULL, " ")) {
        long s[4];
        int given = sscanf(name, "%ldx%ldx%ldx%ld", s, s + 1, s + 2, s + 3);
        if (given == 4) measure(name, s[0], s[1], s[2], s[3]);
        if (given == 3) measure(name, 1, s[0], s[1], s[2]);
    }
    free(text);
}
