// The DTLS peer of Tools/soak/run, with GnuTLS. It checks each byte.
//
//     datagrams serve FOLDER PLANT
//     datagrams connect FOLDER PLANT SEED PAUSE RAMP PORT COUNT
//
// Both print their counts as JSON each second. They stop on a line of standard input, and exit on the next.
#include "soak.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count != 4 && count != 9) return fputs("usage: see Tools/soak/run\n", stderr), 2;
    plants_bytes = strcmp(words[3], "peer-byte") == 0;
    if (count == 4) serve(words[2]);
    else connect_clients(words[2], strtoull(words[4], NULL, 10), atof(words[5]), atof(words[6]), atoi(words[7]), atoi(words[8]));
    report_until_stopped();
    return 0;
}
