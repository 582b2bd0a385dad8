/* Layouts of a conversation: what stands around its lines, as models for conversations were trained with. */
#include <stdio.h>
#include <string.h>

#include "chat.h"

static const chat_layout layouts[] = {
    {"plain", "", "", "\n", "\n", NULL},
    {"chatml", "", "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n", "<|im_end|>"},
    {"llama2", "", "[INST] ", " [/INST]", " ", NULL},
    {"llama3", "", "<|start_header_id|>user<|end_header_id|>\n\n",
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", "<|eot_id|>"},
    {"gemma", "", "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>\n", "<end_of_turn>"},
};

const chat_layout *chat_find_layout(const char *name)
{
    if (!name) return &layouts[0];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (strcmp(layouts[i].name, name) == 0) return &layouts[i];
    fprintf(stderr, "chat: --layout: expected");
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) fprintf(stderr, " %s", layouts[i].name);
    fprintf(stderr, ", found %s\n", name);
    return NULL;
}
