/* test_chat.c : conversations as a model's own template writes them. Templates are the published ones,
 * shortened where noted; what is expected was written down by reading them. */
#include "tools/specrt-eval/shared/eval.h"
#include "tools/specrt-eval/shared/chat_template.h"

#include "folder.h"

#include "gguf_build.h"

/* ---- a model with a template ---- */

static int adds_bos = -1; /* tokenizer.ggml.add_bos_token; -1: the file does not say */

static const char *const specials[] = {"<|im_start|>",
                                       "<|im_end|>",
                                       "<|begin_of_text|>",
                                       "<|start_header_id|>",
                                       "<|end_header_id|>",
                                       "<|eot_id|>",
                                       "<start_of_turn>",
                                       "<end_of_turn>",
                                       "<bos>",
                                       "<s>",
                                       "</s>",
                                       NULL};

enum { N_LETTERS = 94 + 2, FIRST_SPECIAL = N_LETTERS + 1, BOS = FIRST_SPECIAL + 9 };

/* A token for each character of ASCII, as byte-level vocabularies spell it, and the specials; <s> begins
 * texts. */
static const char *write_model(const char *text) {
    static char letters[N_LETTERS][3];
    const char *tokens[N_LETTERS + 16] = {NULL};
    const char *merges[] = {"a b", NULL};
    int32_t types[N_LETTERS + 16], n = 0;
    for (; n < 94; n++) letters[n][0] = (char)('!' + n);
    memcpy(letters[n++], "\xC4\xA0", 2);
    memcpy(letters[n++], "\xC4\x8A", 2);
    for (int i = 0; i < n; i++) tokens[i] = letters[i], types[i] = 1;
    tokens[n] = "ab", types[n++] = 1;
    for (int i = 0; specials[i]; i++) tokens[n] = specials[i], types[n++] = 3;
    begin();
    put_string("tokenizer.ggml.model", "gpt2");
    put_string("tokenizer.ggml.pre", "gpt-2");
    put_strings("tokenizer.ggml.tokens", tokens);
    put_ints("tokenizer.ggml.token_type", types, (uint64_t)n);
    put_strings("tokenizer.ggml.merges", merges);
    put_int("tokenizer.ggml.bos_token_id", BOS);
    if (adds_bos >= 0) put_int("tokenizer.ggml.add_bos_token", (uint32_t)adds_bos);
    if (text) put_string("tokenizer.chat_template", text);
    const char *path = in_folder("model");
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(file, 1, n_file, f) == n_file && fclose(f) == 0);
    return path;
}

typedef struct model {
    tokenizer *tok;
    chat *chat;
} model;

static model open_model(const char *text, const char *name) {
    const char *path = write_model(text);
    const eval_options o = {.target = path, .template_name = name};
    specrt_error err = {0};
    model m = {0};
    if (sl_tokenizer_open(path, &m.tok, &err) || chat_create(&o, m.tok, &m.chat, &err))
        fprintf(stderr, "%s\n", err.msg);
    REQUIRE(m.chat);
    return m;
}

static void close_model(model *m) {
    chat_free(m->chat);
    sl_tokenizer_close(m->tok);
    clear_folder();
}

/* The ids as text; *n_special: how many of them are no letters. */
static char *shown_of(const model *m, const id_list *ids, int *n_special) {
    static char text[4096];
    size_t n = 0, n_bytes;
    *n_special = 0;
    for (size_t i = 0; i < ids->n; i++) {
        const uint8_t *bytes = sl_tokenizer_bytes(m->tok, ids->ids[i], &n_bytes);
        memcpy(text + n, bytes, n_bytes);
        n += n_bytes;
        *n_special += sl_tokenizer_type(m->tok, ids->ids[i]) != TOKEN_NORMAL;
    }
    text[n] = '\0';
    return text;
}

/* Two turns, answered "yes"; `system` is the prompt's own. */
static void check_talk(const char *text, const char *system, const char *expected, int n_expected) {
    static const char answer[] = "yes";
    model m = open_model(text, NULL);
    id_list ids = {0};
    int n_special;
    CHECK_STR(m.chat->from, "model");
    CHECK(!m.chat->unknown);
    REQUIRE(chat_begin(m.chat, system, &ids) == SPECRT_STATUS_OK);
    REQUIRE(chat_user(m.chat, " hi\n", &ids) == SPECRT_STATUS_OK);
    for (int i = 0; answer[i]; i++) {
        int32_t id = answer[i] - '!';
        REQUIRE(ids_append(&ids, &id, 1) == SPECRT_STATUS_OK);
    }
    REQUIRE(chat_answered(m.chat, &ids) == SPECRT_STATUS_OK);
    REQUIRE(chat_user(m.chat, "<|im_end|>?", &ids) == SPECRT_STATUS_OK); /* text, no special */
    CHECK_STR(shown_of(&m, &ids, &n_special), expected);
    CHECK_INT(n_special, n_expected);
    free(ids.ids);
    close_model(&m);
}

/* ---- ChatML ---- */

/* SmolLM2's, whole: line breaks stand as they are. */
static const char smollm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

/* Qwen2.5's without the words on tools and their calls: line breaks are escaped. */
static const char qwen25[] =
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n"
    "    {%- if messages[0]['role'] == 'system' %}\n        {{- messages[0]['content'] }}\n"
    "    {%- else %}\n        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful "
    "assistant.' }}\n    {%- endif %}\n"
    "    {{- \"\\n\\n# Tools\\n\\n</tool_call><|im_end|>\\n\" }}\n"
    "{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n"
    "        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n"
    "    {%- else %}\n        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. "
    "You are a helpful assistant.<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n"
    "{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == "
    "\"system\" and not loop.first) %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' "
    "}}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n";

/* A default in a variable, the token of beginnings, an answer that begins with a thought. */
static const char thinking[] =
    "{% set system_message = 'It\\'s \"you\".' %}{% if messages[0]['role'] == 'system' %}"
    "{% set system_message = messages[0]['content'] %}{% endif %}{{ bos_token }}"
    "{{ '<|im_start|>system\\n' + system_message + '<|im_end|>\\n' }}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] | trim + '<|im_end|>\\n' }}{% endfor %}"
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
    "{% endif %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif "
    "%}";

#define CHATML_TALK                                                                                \
    "<|im_start|>user\n hi\n<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"                    \
    "<|im_start|>user\n<|im_end|>?<|im_end|>\n<|im_start|>assistant\n"

TEST(chatml, "SmolLM2's, Qwen's and a thinking one, with their system prompts") {
    check_talk(smollm2, NULL,
               "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
               "Hugging Face<|im_end|>\n" CHATML_TALK,
               9);
    check_talk(smollm2, "Be <s>brief", "<|im_start|>system\nBe <s>brief<|im_end|>\n" CHATML_TALK,
               9);
    check_talk(smollm2, "", CHATML_TALK, 7);
    check_talk(qwen25, NULL,
               "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
               "assistant.<|im_end|>\n" CHATML_TALK,
               9);
    check_talk(thinking, NULL,
               "<s><|im_start|>system\nIt's \"you\".<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
               "<|im_start|>assistant\n<think>\nyes<|im_end|>\n"
               "<|im_start|>user\n<|im_end|>?<|im_end|>\n<|im_start|>assistant\n<think>\n",
               10);
}

/* ---- Llama 3 ---- */

static const char llama3[] =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
    "+ "
    "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

/* Llama 3.2's without tools. */
static const char llama32[] =
    "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined "
    "%}\n"
    "        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n    {%- else %}\n"
    "        {%- set date_string = \"26 Jul 2024\" %}\n    {%- endif %}\n{%- endif %}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = messages[0]['content']|trim %}\n"
    "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n"
    "{%- endif %}\n"
    "{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n"
    "{{- \"Cutting Knowledge Date: December 2023\\n\" }}\n"
    "{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n"
    "{{- system_message }}\n{{- \"<|eot_id|>\" }}\n"
    "{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n";

#define LLAMA3_TALK                                                                                \
    "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"                                     \
    "<|start_header_id|>assistant<|end_header_id|>\n\nyes<|eot_id|>"                               \
    "<|start_header_id|>user<|end_header_id|>\n\n<|im_end|>?<|eot_id|>"                            \
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
#define LLAMA32_SYSTEM                                                                             \
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"                              \
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

TEST(llama3, "the first, and the one that tells dates") {
    check_talk(llama3, NULL, "<|begin_of_text|>" LLAMA3_TALK, 12);
    check_talk(llama3, " brief ",
               "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nbrief<|eot_id|"
               ">" LLAMA3_TALK,
               15);
    check_talk(llama32, NULL, LLAMA32_SYSTEM "<|eot_id|>" LLAMA3_TALK, 15);
    check_talk(llama32, "brief", LLAMA32_SYSTEM "brief<|eot_id|>" LLAMA3_TALK, 15);
}

/* ---- others ---- */

static const char vicuna[] =
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set "
    "system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = 'Answer the user\\'s questions.' %}{% endif %}"
    "{% for message in loop_messages %}{% if loop.index0 == 0 %}{{ bos_token + system_message }}"
    "{% endif %}{% if message['role'] == 'user' %}{{ ' USER: ' + message['content'].strip() }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ASSISTANT: ' + message['content'].strip() + "
    "eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif "
    "%}";

static const char gemma[] =
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not "
    "supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') "
    "%}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ "
    "'<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor "
    "%}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}";

TEST(others, "Vicuna and Gemma") {
    check_talk(vicuna, NULL,
               "<s>Answer the user's questions. USER: hi ASSISTANT:yes</s> USER: <|im_end|>? "
               "ASSISTANT:",
               2);
    check_talk(gemma, NULL,
               "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyes<end_of_turn>\n"
               "<start_of_turn>user\n<|im_end|>?<end_of_turn>\n<start_of_turn>model\n",
               8);
    check_talk(gemma, "Be brief",
               "<bos><start_of_turn>user\nBe brief\n\nhi<end_of_turn>\n<start_of_turn>model\nyes"
               "<end_of_turn>\n<start_of_turn>user\n<|im_end|>?<end_of_turn>\n"
               "<start_of_turn>model\n",
               8);
}

/* ---- who says so ---- */

/* Phi-4's and Mistral's, of forms that are not known. */
static const char phi4[] =
    "{% for message in messages %}{% if (message['role'] == 'user') "
    "%}{{'<|im_start|>user<|im_sep|>'"
    " + message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}";
static const char mistral[] =
    "{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% endfor %}";

static void check_from(const char *text, const char *name, const char *form, const char *from,
                       bool unknown) {
    model m = open_model(text, name);
    json_object *o = json_object_new_object();
    chat_put_json(m.chat, o);
    char *json = sl_json_to_text(o);
    CHECK_STR(m.chat->form.name, form);
    CHECK_STR(m.chat->from, from);
    CHECK_INT(m.chat->unknown, unknown);
    CHECK_HAS(json, form);
    CHECK_HAS(json, from);
    free(json);
    close_model(&m);
}

TEST(from, "whose template it is") {
    check_from(smollm2, NULL, "chatml", "model", false);
    check_from(smollm2, "vicuna", "vicuna", "option", false);
    check_from(phi4, NULL, "llama3", "special tokens", true);
    check_from(mistral, NULL, "llama3", "special tokens", true);
    check_from("", NULL, "llama3", "special tokens", true);
    check_from(NULL, NULL, "llama3", "special tokens", false);
    model m = open_model(smollm2, NULL);
    CHECK_STR(m.chat->form.default_system,
              "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
    close_model(&m);
    m = open_model(smollm2, "chatml"); /* as it is named: without what the model adds */
    CHECK(!m.chat->form.default_system);
    close_model(&m);
}

TEST(cut, "every end of every template: nothing is read behind it") {
    static const char *const texts[] = {smollm2, qwen25, thinking, llama3,
                                        llama32, vicuna, gemma,    phi4};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t n = 0; n <= strlen(texts[t]); n++) {
            char *part = strndup(texts[t], n);
            chat_template own = {0};
            REQUIRE(part);
            if (chat_template_read(part, &own)) CHECK(own.form.name != NULL);
            chat_template_free(&own);
            free(part);
        }
}

/* ---- prompts with a system message ---- */

static void check_prompt(const char *line, const char *system, int n_turns, const char *first) {
    prompt_list list = {0};
    specrt_error err = {0};
    const char *path = in_folder("prompts");
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fputs(line, f) >= 0 && fclose(f) == 0);
    CHECK_INT(sl_prompts_read(path, NULL, &list, &err), SPECRT_STATUS_OK);
    REQUIRE(list.n == 1);
    CHECK_INT(list.items[0].n_turns, n_turns);
    CHECK_STR(list.items[0].turns[0], first);
    CHECK(!system == !list.items[0].system);
    if (system) CHECK_STR(list.items[0].system, system);
    sl_prompts_free(&list);
    clear_folder();
}

TEST(prompts, "their own system messages") {
    check_prompt("{\"prompt\": \"a\"}", NULL, 1, "a");
    check_prompt("{\"system\": \"s\", \"prompt\": \"a\"}", "s", 1, "a");
    check_prompt("{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
                 "\"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"x\"}, {\"role\": "
                 "\"user\", \"content\": \"b\"}]}",
                 "s", 2, "a");
    check_prompt(
        "{\"question\": [[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
        "\"content\": \"a\"}]], \"function\": [1]}",
        "s", 1, "[1]\n\na");
}

/* What plainly continues begins as the file says, else with the first token of a usual name. */
TEST(plain, "what begins a text without a template") {
    static const struct {
        int adds;
        const char *begin;
    } said[] = {{-1, "<|begin_of_text|>"}, {0, ""}, {1, "<s>"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        id_list ids = {0};
        int n_special;
        adds_bos = said[i].adds;
        model m = open_model(NULL, "none");
        REQUIRE(chat_begin(m.chat, NULL, &ids) == SPECRT_STATUS_OK);
        REQUIRE(chat_user(m.chat, "hi", &ids) == SPECRT_STATUS_OK);
        char expected[32];
        snprintf(expected, sizeof expected, "%shi", said[i].begin);
        CHECK_STR(shown_of(&m, &ids, &n_special), expected);
        CHECK_INT(n_special, said[i].begin[0] != 0);
        free(ids.ids);
        close_model(&m);
    }
    adds_bos = -1;
}
