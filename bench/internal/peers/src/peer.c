/*
 * The other side of bench compare: what bench measures of tagmatch, in MPI, for Open MPI and MPICH.
 *
 *   peer MODE [-s bytes] [-n messages] [-w window] [-d depth] [-k kind] [-t threads] [-o operation] [-c] -p CPU,CPU
 *
 *   lat      half round trip
 *   rate     windows of Isend and Irecv, each ended by Waitall and a 4-byte answer (osu_mbw_mr's pattern); also bw
 *   depth    half round trip behind -d entries on each side that do not match: -k posted, unexpected, anysource
 *   threads  half round trip of -t pairs of threads at once, MPI_THREAD_MULTIPLE, for 0.3 s
 *   coll     collective operation -o among any number of ranks, with vectors of float, or blocks for each rank, of -s bytes
 *
 * -c takes another buffer for each message, from so many that none is in a cache. Rank i runs on the first CPU of -p where i is even, else on the second.
 * Rank 0 prints one JSON object, with the names that bench -json has.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 100, PING = 1, PONG = 2, STREAM = 3, ANSWER = 4, FILL = 5, FIRST_OTHER = 100, COLD_BYTES = 256 << 20 };

static int rank, ranks, size = 8, iters = 1000, window = 64, depth, threads = 1, cold;
static const char *kind = "posted", *op = "allreduce";

static void fail(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double processor_time(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Page-aligned and written to, so that every page is there. */
static char *buffer(size_t n) {
    void *p;
    if (posix_memalign(&p, 4096, n + 4096) != 0) fail("no memory");
    memset(p, 0x5a, n + 4096);
    return p;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *v, int n, double q) {
    qsort(v, n, sizeof *v, by_value);
    return v[(int)(q * (n - 1))];
}

static int warm_up(void) { return iters / 10 + 1 < 1000 ? iters / 10 + 1 : 1000; }

/* The processor is set before MPI_Init, which places memory and threads. */
static void pin(const char *cpus) {
    const char *r = getenv("OMPI_COMM_WORLD_RANK");
    cpu_set_t set;
    int cpu[2];
    if (r == NULL) r = getenv("PMI_RANK");
    if (r == NULL || sscanf(cpus, "%d,%d", &cpu[0], &cpu[1]) != 2) {
        fprintf(stderr, "peer: start it by mpirun, with -p CPU,CPU\n");
        exit(2);
    }
    CPU_ZERO(&set);
    CPU_SET(cpu[atoi(r) & 1], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("peer: sched_setaffinity");
        exit(2);
    }
}

/* Round trips with the tags of a pair of threads. */
static void rounds(int n, char *out, char *in, int pair) {
    int ping = PING + 10 * pair, pong = PONG + 10 * pair;
    for (int i = 0; i < n; i++) {
        if (rank == 0) {
            MPI_Send(out, size, MPI_CHAR, 1, ping, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_CHAR, 1, pong, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_CHAR, 0, ping, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_CHAR, 0, pong, MPI_COMM_WORLD);
        }
    }
}

/* The first half of the rounds is timed in parts, the clock is not read between them; the second half round by round. */
static void latency(void) {
    char *out = buffer(size), *in = buffer(size);
    double *each = malloc(sizeof(double) * iters), parts[PARTS];
    double start, last, total = 0;
    int part = iters < PARTS ? 1 : iters / PARTS, n = iters < PARTS ? iters : PARTS;
    if (each == NULL) fail("no memory");
    memset(in, 0, size);
    rounds(1, out, in, 0);
    if (memcmp(in, out, size) != 0) fail("a message arrived damaged");
    rounds(warm_up(), out, in, 0);
    for (int i = 0; i < n; i++) {
        start = now();
        rounds(part, out, in, 0);
        parts[i] = (now() - start) / part;
        total += parts[i];
    }
    last = now();
    for (int i = 0; i < iters; i++) {
        rounds(1, out, in, 0);
        start = now();
        each[i] = start - last;
        last = start;
    }
    if (rank == 0)
        printf("{\"avg_us\":%.4f,\"mid_us\":%.4f,\"p50_us\":%.4f,\"p99_us\":%.4f}\n", 5e5 * total / n, 5e5 * quantile(parts, n, 0.5),
               5e5 * quantile(each, iters, 0.5), 5e5 * quantile(each, iters, 0.99));
}

/* The buffer of message i: one for all, or the next of a pool that no cache holds. */
static char *pool;
static int pooled = 1;

static char *nth(long i) { return pool + (size_t)(i % pooled) * ((size + 4095) & ~(size_t)4095); }

static void windows(long n) {
    MPI_Request *reqs = malloc(sizeof *reqs * window);
    int answer = 0;
    for (long sent = 0; sent < n;) {
        int k = n - sent < window ? n - sent : window;
        for (int i = 0; i < k; i++) {
            if (rank == 0)
                MPI_Isend(nth(sent + i), size, MPI_CHAR, 1, STREAM, MPI_COMM_WORLD, &reqs[i]);
            else
                MPI_Irecv(nth(sent + i), size, MPI_CHAR, 0, STREAM, MPI_COMM_WORLD, &reqs[i]);
        }
        MPI_Waitall(k, reqs, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&answer, 4, MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 4, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
        sent += k;
    }
    free(reqs);
}

static void stream(void) {
    size_t stride = (size + 4095) & ~(size_t)4095;
    double start, cpu, elapsed, both;
    if (cold) {
        pooled = COLD_BYTES / (stride > 0 ? stride : 4096);
        if (pooled < window) pooled = window;
    }
    pool = buffer(stride * pooled);
    windows(warm_up() < window ? window : warm_up());
    MPI_Barrier(MPI_COMM_WORLD);
    start = now();
    cpu = processor_time();
    windows(iters);
    elapsed = now() - start;
    cpu = processor_time() - cpu;
    MPI_Reduce(&cpu, &both, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"mb_s\":%.3f,\"msg_s\":%.1f,\"cpu_s_per_gb\":%.5f}\n", (double)size * iters / elapsed / 1e6, iters / elapsed,
               size > 0 ? both / ((double)size * iters / 1e9) : 0);
}

/* Entries on both sides that match nothing of the rounds, in the queue that kind names; released after the rounds. */
static void behind(void) {
    int any = strcmp(kind, "anysource") == 0, unexpected = strcmp(kind, "unexpected") == 0;
    int from = any ? MPI_ANY_SOURCE : 1 - rank;
    char *buf = buffer(8 * (size_t)(depth + 1));
    MPI_Request *reqs = malloc(sizeof *reqs * (depth + 1));
    if (reqs == NULL) fail("no memory");
    if (!any && !unexpected && strcmp(kind, "posted") != 0) fail("-k is not posted, unexpected or anysource");
    for (int i = 0; i < depth; i++) {
        if (unexpected)
            MPI_Isend(buf + 8 * i, 8, MPI_CHAR, 1 - rank, FIRST_OTHER + i, MPI_COMM_WORLD, &reqs[i]);
        else
            MPI_Irecv(buf + 8 * i, 8, MPI_CHAR, from, FIRST_OTHER + i, MPI_COMM_WORLD, &reqs[i]);
    }
    /* A message that follows them on both sides: when it has arrived they have. */
    MPI_Sendrecv(buf, 4, MPI_CHAR, 1 - rank, FILL, buf + 4, 4, MPI_CHAR, 1 - rank, FILL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    latency();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < depth; i++) {
        if (unexpected)
            MPI_Recv(buf, 8, MPI_CHAR, from, FIRST_OTHER + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Cancel(&reqs[i]);
    }
    MPI_Waitall(depth, reqs, MPI_STATUSES_IGNORE);
}

static pthread_barrier_t ready;
static double until;

struct pair {
    int number;
    long rounds;
    double began, ended;
};

/*
 * Rank 0 ends the rounds of a pair when the time is up: the first byte of a message says so. A number of rounds would not do,
 * since pairs that have the processors for a moment make thousands at a stroke, and others none.
 */
static void *one_thread(void *arg) {
    struct pair *p = arg;
    int ping = PING + 10 * p->number, pong = PONG + 10 * p->number;
    char *out = buffer(size + 1), *in = buffer(size + 1);
    rounds(10, out, in, p->number);
    pthread_barrier_wait(&ready);
    p->began = now();
    for (out[0] = 0; !out[0]; p->rounds++) {
        if (rank == 0) {
            out[0] = now() > until;
            MPI_Send(out, size, MPI_CHAR, 1, ping, MPI_COMM_WORLD);
            MPI_Recv(in, size, MPI_CHAR, 1, pong, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, size, MPI_CHAR, 0, ping, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_CHAR, 0, pong, MPI_COMM_WORLD);
            out[0] = in[0];
        }
    }
    p->ended = now();
    return NULL;
}

/* The average is that of all rounds of all pairs, from the first start to the last end. */
static void thread_pairs(void) {
    pthread_t id[256];
    struct pair pairs[256] = {{0}};
    double began = 0, ended = 0;
    long total = 0;
    if (threads < 1 || threads > 256 || size < 1) fail("threads takes -t 1 to 256, and -s 1 or more");
    pthread_barrier_init(&ready, NULL, threads);
    until = now() + 0.3;
    for (int i = 0; i < threads; i++) {
        pairs[i].number = i;
        if (pthread_create(&id[i], NULL, one_thread, &pairs[i]) != 0) fail("pthread_create");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], NULL);
        total += pairs[i].rounds;
        if (i == 0 || pairs[i].began < began) began = pairs[i].began;
        if (i == 0 || pairs[i].ended > ended) ended = pairs[i].ended;
    }
    if (rank == 0) printf("{\"avg_us\":%.4f}\n", 5e5 * (ended - began) * threads / total);
}

/* A rank's vector or block, of so many elements, and vectors with a block for each rank. */
static float *mine, *whole, *other;
static int block;

static void all_reduce(int root) { MPI_Allreduce(MPI_IN_PLACE, mine, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void bcast(int root) { MPI_Bcast(mine, block, MPI_FLOAT, root, MPI_COMM_WORLD); }
static void all_gather(int root) { MPI_Allgather(mine, block, MPI_FLOAT, whole, block, MPI_FLOAT, MPI_COMM_WORLD); }
static void reduce_scatter(int root) { MPI_Reduce_scatter_block(whole, mine, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void all_to_all(int root) { MPI_Alltoall(whole, block, MPI_FLOAT, other, block, MPI_FLOAT, MPI_COMM_WORLD); }
static void barrier(int root) { MPI_Barrier(MPI_COMM_WORLD); }

/* What rank r gives, the sum of that of all, and what the operations leave where rank 0 is the root. */
static float operand(int r, int i) { return 1 + r + i % 7; }
static float sum(int i) { return ranks * (ranks + 1) / 2 + ranks * (i % 7); }
static float given_by_root(int i) { return operand(0, i); }
static float gathered(int i) { return operand(i / block, i % block); }
static float scattered(int i) { return sum(rank * block + i); }
static float exchanged(int i) { return operand(i / block, rank * block + i % block); }

static const struct operation {
    const char *name;
    void (*run)(int root);
    float **result;
    int blocks; /* of the result; 0: one for each rank */
    float (*want)(int i);
} operations[] = {
    {"allreduce", all_reduce, &mine, 1, sum},
    {"bcast", bcast, &mine, 1, given_by_root},
    {"allgather", all_gather, &whole, 0, gathered},
    {"reducescatter", reduce_scatter, &mine, 1, scattered},
    {"alltoall", all_to_all, &other, 0, exchanged},
    {"barrier", barrier, NULL, 1, NULL},
};

/* Each rank is the root in turn, as in bench coll. */
static double calls(const struct operation *o, int n) {
    double start = now();
    for (int i = 0; i < n; i++) o->run(i % ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    return n > 0 ? (now() - start) / n : 0;
}

static void collective(void) {
    enum { ROUNDS = 9 };
    double rounds[ROUNDS], least;
    int k = iters < ROUNDS ? iters : ROUNDS, all;
    const struct operation *o = operations, *end = operations + sizeof operations / sizeof *operations;
    while (o < end && strcmp(o->name, op) != 0) o++;
    if (o == end) fail("-o is no operation that this program knows");
    block = size / 4;
    all = block * ranks;
    mine = (float *)buffer(size);
    whole = (float *)buffer((size_t)size * ranks);
    other = (float *)buffer((size_t)size * ranks);
    for (int i = 0; i < block; i++) mine[i] = operand(rank, i);
    for (int i = 0; i < all; i++) whole[i] = operand(rank, i);
    o->run(0);
    for (int i = 0; o->want != NULL && i < (o->blocks == 0 ? all : block); i++)
        if ((*o->result)[i] != o->want(i)) fail("a result is wrong");
    /* Operands are 0 from now on: sums do not grow. */
    memset(mine, 0, size);
    memset(whole, 0, (size_t)size * ranks);
    calls(o, warm_up());
    for (int i = 0; i < k; i++) rounds[i] = 1e6 * calls(o, (long)iters * (i + 1) / k - (long)iters * i / k);
    least = quantile(rounds, k, 0);
    if (rank == 0) printf("{\"call_us\":%.4f,\"least_us\":%.4f}\n", quantile(rounds, k, 0.5), least);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "", *cpus = "";
    int o, given, asked;
    optind = 2;
    while ((o = getopt(argc, argv, "s:n:w:d:k:t:o:cp:")) != -1) {
        switch (o) {
        case 's': size = atoi(optarg); break;
        case 'n': iters = atoi(optarg); break;
        case 'w': window = atoi(optarg); break;
        case 'd': depth = atoi(optarg); break;
        case 'k': kind = optarg; break;
        case 't': threads = atoi(optarg); break;
        case 'o': op = optarg; break;
        case 'c': cold = 1; break;
        case 'p': cpus = optarg; break;
        default: return 2;
        }
    }
    pin(cpus);
    asked = strcmp(mode, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, asked, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 && strcmp(mode, "coll") != 0) fail("start it as two ranks");
    if (given < asked) fail("this MPI has no MPI_THREAD_MULTIPLE");
    if (size < 0 || iters < 1 || window < 1 || depth < 0) fail("a number is too small");
    if (strcmp(mode, "lat") == 0)
        latency();
    else if (strcmp(mode, "rate") == 0 || strcmp(mode, "bw") == 0)
        stream();
    else if (strcmp(mode, "depth") == 0)
        behind();
    else if (strcmp(mode, "threads") == 0)
        thread_pairs();
    else if (strcmp(mode, "coll") == 0)
        collective();
    else
        fail("MODE is lat, rate, bw, depth, threads or coll");
    MPI_Finalize();
    return 0;
}
