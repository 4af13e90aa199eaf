#pragma once

// Sends the calls that librmm.so makes to the CUDA runtime inside it to the functions of the same
// names in this process.
void redirect_librmm();
