# Toolchain: Debian's cross compiler for arm64 (gcc-aarch64-linux-gnu), libraries of that architecture (libjansson-dev:arm64
# and so on, installed beside those of the machine itself), and qemu, which runs the tests. scripts/test-arm64.sh installs all.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# pkg-config must not find the libraries of the machine that compiles.
find_program(PKG_CONFIG_EXECUTABLE NAMES aarch64-linux-gnu-pkg-config pkg-config)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

find_program(TOW_QEMU NAMES qemu-aarch64-static qemu-aarch64)
set(CMAKE_CROSSCOMPILING_EMULATOR ${TOW_QEMU})
