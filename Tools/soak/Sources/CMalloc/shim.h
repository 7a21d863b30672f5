#include <malloc.h>

// In Swift, `mallinfo2()` creates a structure instead of calling the function of the same name.
static inline double allocated_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}
