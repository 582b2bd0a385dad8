/* WordLevel: a word is a token, or unknown. */
#include "src/text/tokenizer.h"

void tow__wordlevel_word(int32_t unk, const tow__vocabulary *v, const char *word, size_t length, tow__pieces *pieces)
{
    const int32_t id = tow__vocabulary_find_model(v, word, length);
    if (id == TOW__NO_ID && unk == TOW__NO_ID)
        pieces->unknown = true;
    else
        tow__pieces_add(pieces, id != TOW__NO_ID ? id : unk, 0, length);
}
