/* test_script.c : the script of a document. */
#include "corpus/script.h"
#include "test.h"

static script_finder *finder;

static void check_script(const char *text, const char *expected) {
    CHECK_STR(sl_script_name(sl_script_of(finder, text, strlen(text))), expected);
}

static void open_finder(void) {
    REQUIRE(sl_script_finder_new(&finder, NULL) == SPECRT_STATUS_OK);
}

TEST(plain, "one script") {
    open_finder();
    check_script("It is what it is.", "Latin");
    check_script("Größe, naïve, ŀa", "Latin");
    check_script("éà", "Latin");
    check_script("Съешь ещё этих мягких булок", "Cyrillic");
    check_script("敏捷的棕色狐狸跳过了懒狗。", "Han");
    check_script("いろはにほへと", "Japanese");
    check_script("키스의 고유조건은 입술끼리", "Hangul");
    check_script("صِف خَلقَ خَودِ", "Arabic");
    check_script("דג סקרן שט בים", "Hebrew");
    check_script("ξεσκεπάζω την ψυχοφθόρα", "Greek");
    check_script("ऋषियों को सताने वाले", "Devanagari");
    check_script("เป็นมนุษย์สุดประเสริฐ", "Thai");
    check_script("ᚠᛇᚻ᛫ᛒᛦᚦ", "other");
    sl_script_finder_free(finder);
}

TEST(without_letters, "numbers, signs, nothing") {
    open_finder();
    check_script("", "none");
    check_script("12 + 30 = 42 \xF0\x9F\x98\x80 \xE2\x82\xAC", "none");
    check_script("\xE2\x82\xAA", "none"); /* whose last byte alone would be a letter */
    check_script("\xF0\x9F\x98\x80 ok", "Latin");
    sl_script_finder_free(finder);
}

TEST(mixed, "names and code do not make a text Latin, nor one foreign word a text foreign") {
    open_finder();
    check_script("用 malloc(sizeof(int)) 分配内存，然后检查返回值", "Han");
    check_script("Функция printf() печатает текст по формату", "Cyrillic");
    check_script("The word for cat is кот in Russian and nothing else.", "Latin");
    check_script("The Chinese for cat is 猫, as you may have read before.", "Latin");
    /* 8 Latin letters weigh as much as 2 bytes, of which the one Cyrillic letter has 2: the first counts. */
    check_script("abcdefgh я", "Latin");
    check_script("abcdefg я", "Cyrillic");
    sl_script_finder_free(finder);
}

TEST(japanese, "Han beside kana is Japanese, from a tenth of kana on") {
    open_finder();
    check_script("東京都は日本の首都である", "Japanese");
    check_script("漢字漢字漢字漢字漢の", "Japanese");
    check_script("漢字漢字漢字漢字漢字の", "Han");
    sl_script_finder_free(finder);
}
