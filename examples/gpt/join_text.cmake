# Joins the project's sources and documents into one text for the GPT example to train on.
#   cmake -DROOT=... -DLIST=... -DOUTPUT=... -P join_text.cmake
# LIST is a file with one path relative to ROOT per line. OUTPUT changes only if the text does.
file(STRINGS "${LIST}" paths)
set(joined "${OUTPUT}.new")
file(WRITE "${joined}" "")
foreach(path IN LISTS paths)
  file(READ "${ROOT}/${path}" content)
  string(REGEX REPLACE "  +\\\\\n" " \\\\\n" content "${content}") # macros would teach it to write blanks
  file(APPEND "${joined}" "${content}\n")
endforeach()
file(COPY_FILE "${joined}" "${OUTPUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${joined}")
