/* cuSPARSE: operations succeed and compute nothing. */

DESCRIBES(cusparseGetErrorString)
