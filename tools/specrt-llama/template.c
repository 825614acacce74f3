/* template.c : the target's chat template, as far as llama.cpp's C API knows it. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

char *template_write(const models *m, const char *system, const char *text) {
    const char *template = llama_model_chat_template(m->target, NULL);
    struct llama_chat_message said[2] = {{"system", system}, {"user", text}};
    size_t skip = system ? 0 : 1, room = 2 * (strlen(text) + (system ? strlen(system) : 0)) + 1024;
    char *out = (char *)malloc(room);
    if (!template || !out) return free(out), NULL;
    int32_t n =
        llama_chat_apply_template(template, said + skip, 2 - skip, true, out, (int32_t)room);
    if (n < 0 || (size_t)n >= room) return free(out), NULL;
    out[n] = '\0';
    return out;
}

enum { MOST_TEMPLATES = 256, SAMPLE_ROOM = 1024 };

/* @return bytes; less than 0: unknown template */
static int32_t write_sample(const char *template, char out[SAMPLE_ROOM]) {
    static const struct llama_chat_message said[] = {
        {"system", "s"}, {"user", "u"}, {"assistant", "a"}, {"user", "v"}};
    return llama_chat_apply_template(template, said, 4, true, out, SAMPLE_ROOM);
}

/* llama.cpp recognises a template by its marks but does not return which one it is. The built-in template
 * that writes the same text has its name. */
const char *template_name(const models *m) {
    const char *names[MOST_TEMPLATES], *template = llama_model_chat_template(m->target, NULL);
    char ours[SAMPLE_ROOM], theirs[SAMPLE_ROOM];
    int32_t n = template ? write_sample(template, ours) : -1;
    int32_t n_names = llama_chat_builtin_templates(names, MOST_TEMPLATES);
    if (n < 0 || n > SAMPLE_ROOM) return NULL;
    for (int32_t i = 0; i < n_names && i < MOST_TEMPLATES; i++)
        if (write_sample(names[i], theirs) == n && memcmp(ours, theirs, (size_t)n) == 0)
            return names[i];
    return NULL;
}

void template_announce(const options *o, const models *m) {
    const char *name = template_name(m);
    if (name)
        sl_cli_info("%s has the chat template %s, which is not used: prompts are plain text; -cnv "
                    "writes them in the template",
                    o->target, name);
    else if (llama_model_chat_template(m->target, NULL))
        sl_cli_info("%s has a chat template that llama.cpp's C API does not know; it is not used: "
                    "prompts are plain text",
                    o->target);
}

void template_suggest(const options *o, const models *m, char out[TEMPLATE_HINT]) {
    const char *name = o->conversation ? NULL : template_name(m);
    if (name)
        snprintf(out, TEMPLATE_HINT, "try -cnv, which writes prompts in its chat template, %s",
                 name);
    else
        snprintf(out, TEMPLATE_HINT, "try another prompt%s",
                 o->conversation ? "" : ", or the text in its chat template");
}
