#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

long six(long a, long b, long c, long d, long e, long f)
{
	return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f;
}

int minus_one(void)
{
	return -1;
}

/* upper: a result that is 0 as an int, with other bits in the register */
uint64_t upper(void)
{
	return 1ull << 32;
}

int fail(int number)
{
	errno = number;
	return -1;
}

/* misaligned: what the stack pointer lacks of the alignment that functions are called with */
long misaligned(void)
{
	return ((uintptr_t)__builtin_frame_address(0)) & 15;
}

/* deep uses megabytes of stack */
long deep(long n)
{
	volatile char b[64 << 10];
	memset((char *)b, (int)n, sizeof b);
	return n == 0 ? b[0] : deep(n - 1) + b[sizeof b - 1];
}

/* clobber overwrites the registers that a function may */
long clobber(void)
{
#if defined(__x86_64__)
	__asm__ volatile("xor %%ecx,%%ecx; xor %%edx,%%edx; xor %%esi,%%esi; xor %%edi,%%edi; xor %%r8d,%%r8d;"
			 "xor %%r9d,%%r9d; xor %%r10d,%%r10d; xor %%r11d,%%r11d" ::: "rcx", "rdx", "rsi", "rdi",
			 "r8", "r9", "r10", "r11");
#elif defined(__aarch64__)
	__asm__ volatile("mov x1,0; mov x2,0; mov x3,0; mov x4,0; mov x5,0; mov x6,0; mov x7,0; mov x8,0; mov x9,0;"
			 "mov x10,0; mov x11,0; mov x12,0; mov x13,0; mov x14,0; mov x15,0; mov x16,0; mov x17,0" ::: "x1",
			 "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
			 "x17");
#endif
	return 0;
}

/* sum says that it has begun and waits to be told to go on; the descriptors for that are in the two
   halves of ends. */
uint64_t sum(const unsigned char *p, long n, uint64_t ends)
{
	uint64_t s = 0;
	char c = 0;
	if (write(ends >> 32, &c, 1) != 1 || read(ends & 0xffffffff, &c, 1) != 1)
		return 0;
	while (n--)
		s += *p++;
	return s;
}

/* A queue as extended polling sees one: next fails once nothing is left; id lies in memory, the tag is
   asked for. */
struct queue {
	uint64_t left, id;
};

int next(struct queue *q)
{
	if (q->left == 0)
		return ENOENT;
	q->left--;
	q->id = 1000 + q->left;
	return 0;
}

uint32_t read_tag(struct queue *q, uint64_t *tag)
{
	*tag = 7 * q->id;
	return q->left;
}
