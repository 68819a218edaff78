/* A call of compiled code that is prepared, without frames of Python: prepared_calls.py.

   call(x, w)     x and w are of the known types, and their memory is aligned:
                      new results, pointers, the code, one result or a tuple
                  else: otherwise(x, w)

   The interpreter's lock is held but for the code itself, so that fields need no other one. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MOST 64        /* tensors of one call */
#define FAULT_WORDS 5  /* launch.py */
#define ALIGNMENT 64   /* of the workspace: arguments.py */

typedef int32_t (*Entry)(void *const *, const int64_t *, int64_t *);

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *otherwise;
  /* Of a prepared call, entry is not NULL. */
  Entry entry;
  PyObject *integers, *raise_fault, *after; /* bytes, a callable, a callable or None */
  PyObject *types, *address, *makers;       /* a tuple, a callable, a tuple of callables */
  int32_t order[MOST + 1], n_pointers, n_args, n_results, is_bare;
  uintptr_t misaligned;
  size_t workspace_bytes;
  void *idle; /* a workspace that nobody uses */
} Call;

static int pointer_of(Call *self, PyObject *tensor, void **pointer) {
  PyObject *number = PyObject_Vectorcall(self->address, &tensor, 1, NULL);
  if (number == NULL) return 0;
  *pointer = PyLong_AsVoidPtr(number);
  Py_DECREF(number);
  return *pointer != NULL || !PyErr_Occurred();
}

static int is_known_type(Call *self, PyObject *tensor) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->types); ++i)
    if ((PyObject *)Py_TYPE(tensor) == PyTuple_GET_ITEM(self->types, i)) return 1;
  return 0;
}

static PyObject *new_results(Call *self, void **pointers) {
  PyObject *results = PyTuple_New(self->n_results);
  if (results == NULL) return NULL;
  for (int32_t i = 0; i < self->n_results; ++i) {
    PyObject *made = PyObject_CallNoArgs(PyTuple_GET_ITEM(self->makers, i));
    if (made == NULL || !pointer_of(self, made, pointers + i)) {
      Py_XDECREF(made);
      Py_DECREF(results);
      return NULL;
    }
    PyTuple_SET_ITEM(results, i, made);
  }
  return results;
}

/* Run the code, and return whether it, and what is asked after it, found nothing wrong. */
static int has_run(Call *self, void **given) {
  void *pointers[MOST + 1], *workspace = NULL;
  int64_t fault[FAULT_WORDS] = {0};
  int32_t is_faulty;
  if (self->workspace_bytes) {
    workspace = self->idle;
    self->idle = NULL;
    if (workspace == NULL && posix_memalign(&workspace, ALIGNMENT, self->workspace_bytes)) {
      PyErr_NoMemory();
      return 0;
    }
  }
  given[self->n_args + self->n_results] = workspace;
  for (int32_t i = 0; i < self->n_pointers; ++i) pointers[i] = given[self->order[i]];
  const int64_t *integers = (const int64_t *)PyBytes_AS_STRING(self->integers);
  Py_BEGIN_ALLOW_THREADS
  is_faulty = self->entry(pointers, integers, fault);
  Py_END_ALLOW_THREADS
  if (workspace != NULL && self->idle == NULL) self->idle = workspace;
  else free(workspace);
  PyObject *told = NULL;
  if (self->after != Py_None) {
    told = PyObject_CallNoArgs(self->after);
    if (told == NULL) return 0;
    Py_DECREF(told);
  }
  if (!is_faulty) return 1;
  told = PyObject_CallFunction(self->raise_fault, "LLLLL", (long long)fault[0],
                               (long long)fault[1], (long long)fault[2], (long long)fault[3],
                               (long long)fault[4]);
  if (told != NULL) {
    Py_DECREF(told);
    PyErr_SetString(PyExc_SystemError, "a fault was not raised");
  }
  return 0;
}

static PyObject *call_it(PyObject *callable, PyObject *const *args, size_t nargsf,
                         PyObject *names) {
  Call *self = (Call *)callable;
  void *given[MOST + 1];
  uintptr_t all = 0;
  if (self->entry == NULL || names != NULL || PyVectorcall_NARGS(nargsf) != self->n_args)
    return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
  for (int32_t i = 0; i < self->n_args; ++i) {
    if (!is_known_type(self, args[i]))
      return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
    if (!pointer_of(self, args[i], given + i)) { /* a batch of tensors has no memory */
      if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return NULL;
      PyErr_Clear();
      return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
    }
    all |= (uintptr_t)given[i];
  }
  if (all & self->misaligned) return PyObject_Vectorcall(self->otherwise, args, nargsf, names);
  PyObject *results = new_results(self, given + self->n_args);
  if (results == NULL) return NULL;
  if (!has_run(self, given)) {
    Py_DECREF(results);
    return NULL;
  }
  if (!self->is_bare) return results;
  PyObject *only = Py_NewRef(PyTuple_GET_ITEM(results, 0));
  Py_DECREF(results);
  return only;
}

/* prepare((entry, integers, raise_fault, after), (types, address, misaligned),
           (makers, order, workspace_bytes, is_bare)): once; order ends with the workspace. */
static PyObject *prepare(Call *self, PyObject *args) {
  unsigned long long entry, misaligned;
  PyObject *integers, *raise_fault, *after, *types, *address, *makers, *order;
  Py_ssize_t n_args, workspace_bytes;
  int is_bare;
  if (!PyArg_ParseTuple(args, "(KSOO)(nO!OK)(O!O!np)", &entry, &integers, &raise_fault, &after,
                        &n_args, &PyTuple_Type, &types, &address, &misaligned, &PyTuple_Type,
                        &makers, &PyTuple_Type, &order, &workspace_bytes, &is_bare))
    return NULL;
  Py_ssize_t n_results = PyTuple_GET_SIZE(makers), n_pointers = PyTuple_GET_SIZE(order);
  if (is_bare && n_results != 1) {
    PyErr_SetString(PyExc_ValueError, "not one result");
    return NULL;
  }
  /* It stays as it is: of so many tensors, and where another thread was the first. */
  if (n_args + n_results > MOST || n_pointers > MOST + 1 || self->entry != NULL) Py_RETURN_NONE;
  for (Py_ssize_t i = 0; i < n_pointers; ++i) {
    long position = PyLong_AsLong(PyTuple_GET_ITEM(order, i));
    if (position < 0 || position > n_args + n_results) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "order: no such tensor");
      return NULL;
    }
    self->order[i] = (int32_t)position;
  }
  self->n_args = (int32_t)n_args;
  self->n_results = (int32_t)n_results;
  self->n_pointers = (int32_t)n_pointers;
  self->is_bare = is_bare;
  self->misaligned = (uintptr_t)misaligned;
  self->workspace_bytes = (size_t)workspace_bytes;
  self->integers = Py_NewRef(integers);
  self->raise_fault = Py_NewRef(raise_fault);
  self->after = Py_NewRef(after);
  self->types = Py_NewRef(types);
  self->address = Py_NewRef(address);
  self->makers = Py_NewRef(makers);
  self->entry = (Entry)(uintptr_t)entry;
  Py_RETURN_NONE;
}

static PyObject *new_call(PyTypeObject *type, PyObject *args, PyObject *named) {
  PyObject *otherwise;
  if (named != NULL || !PyArg_ParseTuple(args, "O", &otherwise)) return NULL;
  Call *self = (Call *)type->tp_alloc(type, 0); /* all fields are 0 */
  if (self == NULL) return NULL;
  self->vectorcall = call_it;
  self->otherwise = Py_NewRef(otherwise);
  return (PyObject *)self;
}

static int traverse(Call *self, visitproc visit, void *arg) {
  Py_VISIT(self->otherwise);
  Py_VISIT(self->raise_fault);
  Py_VISIT(self->after);
  Py_VISIT(self->types);
  Py_VISIT(self->address);
  Py_VISIT(self->makers);
  return 0;
}

static int clear(Call *self) {
  self->entry = NULL;
  Py_CLEAR(self->otherwise);
  Py_CLEAR(self->integers);
  Py_CLEAR(self->raise_fault);
  Py_CLEAR(self->after);
  Py_CLEAR(self->types);
  Py_CLEAR(self->address);
  Py_CLEAR(self->makers);
  return 0;
}

static void dealloc(Call *self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  free(self->idle);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *is_prepared(Call *self, void *unused) { return PyBool_FromLong(self->entry != NULL); }

static PyMethodDef methods[] = {
    {"prepare", (PyCFunction)prepare, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"is_prepared", (getter)is_prepared, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject Call_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tcdsl_prepared.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = new_call,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_dealloc = (destructor)dealloc,
    .tp_methods = methods,
    .tp_getset = attributes,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "tcdsl_prepared", .m_size = -1};

PyMODINIT_FUNC PyInit_tcdsl_prepared(void) {
  if (PyType_Ready(&Call_Type) < 0) return NULL;
  PyObject *found = PyModule_Create(&module);
  if (found == NULL) return NULL;
  if (PyModule_AddObjectRef(found, "Call", (PyObject *)&Call_Type) < 0) {
    Py_DECREF(found);
    return NULL;
  }
  return found;
}
