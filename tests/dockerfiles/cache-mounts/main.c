#include <stdio.h>

int main(void) {
    puts("cached");
    return 0;
}
