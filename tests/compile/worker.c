/* worker.c : a user of the worker alone, C99 and C++11: a task that it was given has run when it closes. */
#include "specrt.h"

static void run(specrt_task *task) {
    task->run = NULL;
}

int main(void) {
    specrt_worker *worker;
    specrt_task task = {run, NULL};
    if (specrt_worker_create(NULL, &worker, NULL) != SPECRT_STATUS_OK) return 1;
    specrt_worker_submit(worker, &task);
    specrt_worker_close(worker);
    return task.run != NULL;
}
