/* What the files of the native core share.

Every function reads buffers, and returns new ones; nothing is made for each element. It checks
lengths and ranges before it writes, and raises ValueError if buffers contradict each other. The
caller must not change a buffer during the call: large work is done without the GIL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__SIZEOF_INT128__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for 64-bit little-endian machines, and compilers that have __int128"
#endif

/* Arrow's offsets have 32 bits. */
#define MAX_BYTES INT32_MAX

/* Work on few bytes is done sooner than another thread would have got the GIL. */
#define GIL_BYTES (1 << 16)
#define RELEASE_GIL(bytes) PyThreadState *thread = (bytes) > GIL_BYTES ? PyEval_SaveThread() : NULL
#define TAKE_GIL()                                                                                 \
    if (thread)                                                                                    \
    PyEval_RestoreThread(thread)

#define NEW_BYTES(size) PyByteArray_FromStringAndSize(NULL, (size))
#define BYTES_OF(type, object) ((type *)PyByteArray_AsString(object))

PyObject *group(PyObject *module, PyObject *args);
PyObject *encode_lists(PyObject *module, PyObject *args);
PyObject *encode_lines(PyObject *module, PyObject *args);
PyObject *encode_fields(PyObject *module, PyObject *args);
PyObject *search_runs(PyObject *module, PyObject *args);
PyObject *find_codes(PyObject *module, PyObject *args);
