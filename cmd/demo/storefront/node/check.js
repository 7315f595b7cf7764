// Runs Shopify's theme check over a theme app extension: node check.js FOLDER. It prints every offense
// and fails when one of them is an error.
import { resolve } from 'node:path';
import check from '@shopify/theme-check-node';

const { offenses, theme } = await check.themeCheckRun(resolve(process.argv[2]), 'theme-check:theme-app-extension');
for (const { severity, check: name, uri, start, message } of offenses) {
  console.log(`${['error', 'warning', 'info'][severity]} ${name} ${uri}:${start.line + 1} ${message}`);
}
console.log(`${theme.length} files, ${offenses.length} offenses`);
process.exitCode = theme.length > 0 && offenses.every(({ severity }) => severity !== 0) ? 0 : 1;
